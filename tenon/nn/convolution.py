"""Convolution layers over one, two or three axes, direct and transposed."""

from __future__ import annotations

import math
from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.nn import init
from tenon.nn.module import Module, Parameter
from tenon.ops.creation import empty
from tenon.ops.define import PUBLIC
from tenon.ops.repeating import pad

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PAD_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def sizes_of(value: Any, count: int) -> tuple[int, ...]:
    """One number an axis."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * count


class _Convolution(Module):
    """Weight, bias and options of a convolution over `count` axes."""

    count, transposed = 0, False
    options = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = "float32"):
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(f"{name}: {in_channels} input and {out_channels} output channels do not divide into "
                             f"{groups} groups")
        if padding_mode not in PAD_MODES:
            raise ArgumentError(f"{name}: padding_mode must be one of {', '.join(PAD_MODES)}, not {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f"{name}: padding must be a size, one an axis, 'same' or 'valid', not {padding!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = sizes_of(kernel_size, self.count), sizes_of(stride, self.count)
        self.padding = padding if isinstance(padding, str) else sizes_of(padding, self.count)
        self.dilation, self.padding_mode = sizes_of(dilation, self.count), padding_mode
        self.output_padding = (0,) * self.count
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty((*channels, *self.kernel_size), dtype=dtype))
        self.bias = Parameter(empty(out_channels, dtype=dtype)) if bias else None
        self.reset_parameters()
        self._place(device)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            init.uniform_within_(self.bias, init.fans(self.weight)[0])

    def extra_repr(self) -> str:
        return text_of(self)


def text_of(layer: Any) -> str:
    """The options of a layer, where they are not what they usually are."""
    shown = [f"{layer.in_channels}, {layer.out_channels}, kernel={layer.kernel_size}"]
    for name, usual in (("stride", (1,)), ("padding", (0,)), ("dilation", (1,))):
        value = getattr(layer, name)
        if value != usual * layer.count:
            shown.append(f"{name}={value}")
    shown += [f"groups={layer.groups}"] if layer.groups != 1 else []
    return ", ".join(shown + (["bias=False"] if layer.bias is None else []))


def convolved(layer: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The direct convolution of x with a weight, by the options of a layer."""
    padding: Any = layer.padding
    if layer.padding_mode != "zeros":
        x, padding = _padded(layer, x), 0
    return PUBLIC[f"conv{layer.count}d"](x, weight, bias, layer.stride, padding, layer.dilation, layer.groups)


def _padded(layer: Any, x: Any) -> Any:
    if layer.padding == "valid":
        return x
    if layer.padding == "same":
        total = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation)]
        sides = [(n // 2, n - n // 2) for n in total]
    else:
        sides = [(n, n) for n in sizes_of(layer.padding, layer.count)]
    return pad(x, [(0, 0)] * (x.ndim - layer.count) + sides, mode=PAD_MODES[layer.padding_mode])


class _Direct(_Convolution):
    """The convolution of [N, C, *sizes] with a learned kernel, plus a bias a channel.

    `padding` is a size, one an axis, "same" or "valid"; `padding_mode` is zeros, reflect, replicate or circular.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = "float32"):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                         dtype=dtype)
        self._place(device)

    def forward(self, x: Any) -> Any:
        return convolved(self, x, self.weight, self.bias)


class _Transposed(_Convolution):
    """The transposed convolution: the gradient of a convolution with respect to its input, as a layer."""

    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = "float32"):
        if padding_mode != "zeros":
            raise ArgumentError(f"{type(self).__name__}: padding_mode must be 'zeros', not {padding_mode!r}")
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype=dtype)
        self.output_padding = sizes_of(output_padding, self.count)
        self._place(device)

    def forward(self, x: Any, output_size: Any = None) -> Any:
        """The result, of these sizes where several are possible."""
        more = self.output_padding if output_size is None else self._output_padding(x, output_size)
        return PUBLIC[f"conv_transpose{self.count}d"](x, self.weight, self.bias, self.stride, self.padding, more,
                                                      self.groups, self.dilation)

    def _output_padding(self, x: Any, output_size: Any) -> tuple[int, ...]:
        """How much more than the least possible sizes these are."""
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in zip(
            x.shape[-self.count:], self.stride, sizes_of(self.padding, self.count), self.dilation, self.kernel_size)]
        more = tuple(a - b for a, b in zip(sizes_of(output_size, self.count)[-self.count:], least))
        if any(not 0 <= n < s for n, s in zip(more, self.stride)):
            most = [n + s - 1 for n, s in zip(least, self.stride)]
            raise ShapeError(f"{type(self).__name__}: output_size={output_size} is not between {least} and {most}, "
                             f"which {x.type} may give")
        return more


class Conv1d(_Direct):
    __doc__ = _Direct.__doc__
    count = 1


class Conv2d(_Direct):
    __doc__ = _Direct.__doc__
    count = 2


class Conv3d(_Direct):
    __doc__ = _Direct.__doc__
    count = 3


class ConvTranspose1d(_Transposed):
    __doc__ = _Transposed.__doc__
    count = 1


class ConvTranspose2d(_Transposed):
    __doc__ = _Transposed.__doc__
    count = 2


class ConvTranspose3d(_Transposed):
    __doc__ = _Transposed.__doc__
    count = 3
