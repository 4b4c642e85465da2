"""Pooling layers: the maximum, the mean or a norm of windows; adaptive ones give a fixed size."""

from __future__ import annotations

from typing import Any, ClassVar

from tenon.nn.module import Module
from tenon.ops.define import PUBLIC
from tenon.ops.pooling import lp_pool

USUAL = (("padding", 0), ("dilation", 1), ("count_include_pad", True))
_FAMILIES = ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "LPPool", "MaxUnpool")
__all__ = [f"{family}{count}d" for family in _FAMILIES for count in (1, 2, 3)]


class _Pool(Module):
    """Pools over `count` axes by the function of its family."""

    count: ClassVar[int]

    def extra_repr(self) -> str:
        options = {name: x for name, x in vars(self).items() if name not in ("training", "_persistent")}
        first, usual = next(iter(options), ""), (*USUAL, ("stride", options.get("kernel_size")))
        return ", ".join(f"{x}" if name == first else f"{name}={x}" for name, x in options.items()
                         if name == first or not (x is None or x is False or (name, x) in usual))


class _MaxPool(_Pool):
    """The largest element of each window; `return_indices` adds where it stands."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                 return_indices: bool = False, ceil_mode: bool = False):
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, x: Any) -> Any:
        return PUBLIC[f"max_pool{self.count}d"](x, self.kernel_size, self.stride, self.padding, self.dilation,
                                                self.ceil_mode, self.return_indices)


class _MaxUnpool(_Pool):
    """The elements where `MaxPool` with `return_indices` found them, zeros elsewhere."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def forward(self, x: Any, indices: Any, output_size: Any = None) -> Any:
        return PUBLIC[f"max_unpool{self.count}d"](x, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPool(_Pool):
    """The mean of each window."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: int | None = None):
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, x: Any) -> Any:
        return PUBLIC[f"avg_pool{self.count}d"](x, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                                                self.count_include_pad, self.divisor_override)


class _AdaptiveAvgPool(_Pool):
    """The mean over windows that give an output of this size; None keeps a size."""

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        return PUBLIC[f"adaptive_avg_pool{self.count}d"](x, self.output_size)


class _AdaptiveMaxPool(_Pool):
    """The maximum over windows that give an output of this size; None keeps a size."""

    def __init__(self, output_size: Any, return_indices: bool = False):
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, x: Any) -> Any:
        return PUBLIC[f"adaptive_max_pool{self.count}d"](x, self.output_size, self.return_indices)


class _LPPool(_Pool):
    """The p-norm of each window."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, x: Any) -> Any:
        return lp_pool(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode, self.count)


for _base in (_MaxPool, _AvgPool, _AdaptiveAvgPool, _AdaptiveMaxPool, _LPPool, _MaxUnpool):
    for _count in (1, 2, 3):
        _name = f"{_base.__name__[1:]}{_count}d"
        globals()[_name] = type(_name, (_base,), {"count": _count, "__doc__": _base.__doc__, "__module__": __name__})
