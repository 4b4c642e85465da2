"""Losses as modules: each applies the function of its name with the options it was made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.ops import losses as ops
from tenon.tensor import Tensor

__all__ = ["CrossEntropyLoss", "Loss", "NLLLoss"]


class Loss(Module):
    """A function of predictions and targets; tensors among the options (class weights) are buffers."""

    fn: ClassVar[Callable[..., Any]]
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *values: Any, **named: Any):
        name, names = type(self).__name__, self.defaults
        given = dict(zip(names, values)) | named
        unknown = [key for key in given if key not in names]
        if unknown or len(values) > len(names):
            problem = f"no option {unknown[0]!r}" if unknown else f"{len(values)} options were given"
            raise ArgumentError(f"{name}: {problem}", hint=f"its options are ({', '.join(names)})")
        if given.get("reduction", "mean") not in ("mean", "sum", "none"):
            raise ArgumentError(f"{name}: reduction must be 'mean', 'sum' or 'none', not {given['reduction']!r}")
        self.options = {}
        for key, value in {**names, **given}.items():
            if isinstance(value, Tensor):
                self.register_buffer(key, value)
            else:
                self.options[key] = value

    def forward(self, *inputs: Any) -> Any:
        return type(self).fn(*inputs, **self.options, **{name: getattr(self, name) for name in self._buffers})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={x!r}" for name, x in self.options.items() if x != self.defaults[name])


def _loss(name: str, fn: Callable[..., Any], **defaults: Any) -> type[Loss]:
    return type(name, (Loss,), {"fn": staticmethod(fn), "defaults": defaults, "__doc__": fn.__doc__,
                                "__module__": __name__})


CrossEntropyLoss = _loss("CrossEntropyLoss", ops.cross_entropy, weight=None, ignore_index=-100, reduction="mean",
                         label_smoothing=0.0)
NLLLoss = _loss("NLLLoss", ops.nll_loss, weight=None, ignore_index=-100, reduction="mean")
