"""Every operator under PyTorch's names for its arguments: `input` and `dim` may be said for `x` and `axis`.

    nn.functional.softmax(x, dim=1)     is tn.softmax(x, axis=1)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tenon.migration_hints import FUNCTIONAL, missing
from tenon.nn.attention import multi_head_attention_forward as multi_head_attention_forward
from tenon.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from tenon.nn.ctc import ctc_loss as ctc_loss
from tenon.nn.dropout import alpha_dropout as alpha_dropout
from tenon.nn.dropout import dropout_channels
from tenon.nn.dropout import feature_alpha_dropout as feature_alpha_dropout
from tenon.nn.dropout import rrelu as rrelu
from tenon.nn.embedding import rows_of, rows_of_bags
from tenon.nn.fractional_pooling import fractional_max_pool2d as fractional_max_pool2d
from tenon.nn.fractional_pooling import fractional_max_pool3d as fractional_max_pool3d
from tenon.nn.gumbel_softmax import gumbel_softmax as gumbel_softmax
from tenon.nn.padding import pad as pad
from tenon.ops.define import PUBLIC
from tenon.pytorch_in_place import for_somebody, rebound
from tenon.random import dropout as dropout

OTHER_NAMES = {"dim": "axis", "keepdim": "keepdims", "kernel_size": "kernel"}
dropout1d, dropout2d, dropout3d = (functools.partial(dropout_channels, count=count) for count in (1, 2, 3))


@functools.cache
def _with_torch_names(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator, assigned=("__name__", "__doc__"), updated=())
    def accept(*args: Any, **named: Any) -> Any:
        named = {OTHER_NAMES.get(name, name): value for name, value in named.items()}
        if "input" in named:
            args = (named.pop("input"), *args)
        return operator(*args, **named)
    return accept


def _may_write(name: str) -> Callable[..., Any]:
    """A function whose last parameter, after those of the operator, is `inplace`."""
    operator = globals()[name]
    most = len({*inspect.signature(operator).parameters} - {"count", "generator"})

    @functools.wraps(operator, assigned=("__name__", "__doc__"), updated=())
    def accept(*args: Any, inplace: bool = False, **named: Any) -> Any:
        if len(args) > most:
            *args, inplace = args       # type: ignore[assignment]
        x = args[0] if args else named.get("input", named.get("x"))
        return rebound(x, operator(*args, **named), inplace)
    return accept


# Made here and now: a name that came into being while a function is captured would be a change to this module.
globals().update({name: _with_torch_names(operator) for name, operator in PUBLIC.items() if name not in globals()})


MAY_WRITE = ("alpha_dropout", "celu", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "feature_alpha_dropout",
             "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu", "relu6", "rrelu", "selu", "silu",
             "threshold")
globals().update({name: _may_write(name) for name in MAY_WRITE})


def embedding(input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """`tn.embedding`; with `max_norm`, rows that are read and longer are scaled down to it, in `weight`."""
    return rows_of(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)


embedding_bag = rows_of_bags


def multi_margin_loss(input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None,
                      reduction: str = "mean") -> Any:
    """`tn.multi_margin_loss`, its arguments in PyTorch's order."""
    return PUBLIC["multi_margin_loss"](input, target, weight, p=p, margin=margin, reduction=reduction)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate`, by its older name."""
    return interpolate(input, size, scale_factor)       # type: ignore[name-defined] # noqa: F821


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate(..., mode="bilinear", align_corners=True)`, by its older name."""
    return interpolate(input, size, scale_factor, "bilinear", True)     # type: ignore[name-defined] # noqa: F821


IN_PLACE = ("celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu", "threshold")


def _written_over(name: str) -> Callable[..., Any]:
    operator = globals()[name]

    def change(input: Any, *args: Any, **named: Any) -> Any:
        return input.copy_(operator(input, *args, **named))
    change.__name__, change.__doc__ = f"{name}_", f"The tensor rebound to `{name}(...)`; returns it."
    return for_somebody(change)


globals().update({f"{name}_": _written_over(name) for name in IN_PLACE})
globals().update({f"{name}_with_indices": functools.partial(globals()[name], return_indices=True) for name in (
    "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
    if name in globals()})


def __getattr__(name: str) -> Any:
    raise missing("tenon.nn.functional", name, FUNCTIONAL)


def __dir__() -> list[str]:
    return sorted(PUBLIC)
