"""Activations as modules: each applies the operator of its name to its input, with the options it was made with."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar

from tenon.errors import ArgumentError
from tenon.nn.init import constant_
from tenon.nn.module import Module, Parameter
from tenon.ops import activations as ops
from tenon.ops.creation import empty
from tenon.ops.exponential import sigmoid
from tenon.ops.trigonometric import tanh
from tenon.pytorch_in_place import rebound

__all__ = [
    "Activation", "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]

REQUIRED = object()


class Activation(Module):
    """A function of one tensor, with options given by position or name; PyTorch's `dim` is `axis`.

    Options are attributes, as `layer.negative_slope`, which may be given anew.  `inplace=True`: the input is rebound to
    the result, so who reads it afterwards sees that.
    """

    fn: ClassVar[Callable[..., Any]]
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *values: Any, inplace: bool = False, **named: Any):
        name, names = type(self).__name__, self.defaults
        if len(values) == len(names) + 1 and isinstance(values[-1], bool):
            values, inplace = values[:-1], values[-1]       # by its position
        given = dict(zip(names, values)) | {("axis" if key == "dim" else key): x for key, x in named.items()}
        unknown = [key for key in given if key not in names]
        missing = [key for key, x in names.items() if x is REQUIRED and key not in given]
        if unknown or missing or len(values) > len(names):
            problem = f"no option {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing" if missing else \
                f"{len(values)} options were given"
            raise ArgumentError(f"{name}: {problem}", hint=f"its options are ({', '.join(names)})")
        for key, x in {**names, **given}.items():
            setattr(self, key, x)
        self.inplace = inplace

    @property
    def options(self) -> dict[str, Any]:
        """The options as they are now; each is an attribute, which may be given anew."""
        return {name: getattr(self, name) for name in self.defaults}

    def forward(self, x: Any) -> Any:
        return rebound(x, type(self).fn(x, **self.options), self.inplace)

    def extra_repr(self) -> str:
        said = [f"{name}={x!r}" for name, x in self.options.items() if x != self.defaults[name]]
        return ", ".join(said + ["inplace=True"] * self.inplace)


def _activation(name: str, fn: Callable[..., Any], **defaults: Any) -> type[Activation]:
    also = {"dim": property(attrgetter("axis"))} if "axis" in defaults else {}
    return type(name, (Activation,), {"fn": staticmethod(fn), "defaults": defaults, "__doc__": fn.__doc__,
                                      "__module__": __name__, **also})


ReLU = _activation("ReLU", ops.relu)
LeakyReLU = _activation("LeakyReLU", ops.leaky_relu, negative_slope=0.01)
ReLU6 = _activation("ReLU6", ops.relu6)
Hardtanh = _activation("Hardtanh", ops.hardtanh, min_val=-1.0, max_val=1.0)
Hardsigmoid = _activation("Hardsigmoid", ops.hardsigmoid)
Hardswish = _activation("Hardswish", ops.hardswish)
Threshold = _activation("Threshold", ops.threshold, threshold=REQUIRED, value=REQUIRED)
Softshrink = _activation("Softshrink", ops.softshrink, lambd=0.5)
Hardshrink = _activation("Hardshrink", ops.hardshrink, lambd=0.5)
ELU = _activation("ELU", ops.elu, alpha=1.0)
CELU = _activation("CELU", ops.celu, alpha=1.0)
SELU = _activation("SELU", ops.selu)
GELU = _activation("GELU", ops.gelu, approximate="none")
SiLU = _activation("SiLU", ops.silu)
Mish = _activation("Mish", ops.mish)
Softplus = _activation("Softplus", ops.softplus, beta=1.0, threshold=20.0)
Softsign = _activation("Softsign", ops.softsign)
LogSigmoid = _activation("LogSigmoid", ops.logsigmoid)
Tanhshrink = _activation("Tanhshrink", ops.tanhshrink)
Sigmoid = _activation("Sigmoid", sigmoid)
Tanh = _activation("Tanh", tanh)
Softmax = _activation("Softmax", ops.softmax, axis=-1)
Softmin = _activation("Softmin", ops.softmin, axis=-1)
LogSoftmax = _activation("LogSoftmax", ops.log_softmax, axis=-1)
GLU = _activation("GLU", ops.glu, axis=-1)


class Softmax2d(Module):
    """The softmax over the channels of [N, C, H, W] or [C, H, W]."""

    def forward(self, x: Any) -> Any:
        return ops.softmax(x, axis=-3)


class PReLU(Module):
    """x where positive, else a learned multiple of it: one for all, or one a channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = "float32"):
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, dtype=dtype))
        self.reset_parameters()
        self._place(device)

    def reset_parameters(self) -> None:
        """The multiple as at first."""
        constant_(self.weight, self.init)

    def forward(self, x: Any) -> Any:
        return ops.prelu(x, self.weight)
