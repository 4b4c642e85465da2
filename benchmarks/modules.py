"""What networks written for `torch.nn` need of a library that has arrays and functions, but no modules of that kind.

A module holds arrays; `parameters(net)` takes them out by PyTorch's names, `load(net, values)` puts others in, traced
ones included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Arrays = dict[str, Any]


class Module:
    """Arrays and modules as attributes; a call is `forward`."""

    training = True

    def __init__(self) -> None:
        self.buffers: tuple[str, ...] = ()      # attributes that are no parameters

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def named(self, prefix: str = "") -> Iterator[tuple[Module, str, str]]:
        """(module, attribute, full name) of every array."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield from value.named(f"{prefix}{name}.")
            elif hasattr(value, "dtype"):
                yield self, name, prefix + name


def parameters(net: Module, buffers: bool = False) -> Arrays:
    """The arrays that are trained, or those that are not."""
    return {full: getattr(module, name) for module, name, full in net.named() if (name in module.buffers) == buffers}


def load(net: Module, values: Arrays) -> None:
    """Put arrays in by name."""
    for module, name, full in list(net.named()):
        if full in values:
            setattr(module, name, values[full])


class Sequential(Module):
    def __init__(self, *layers: Any):
        super().__init__()
        self.count = len(layers)
        for k, layer in enumerate(layers):
            setattr(self, str(k), layer)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(k)) for k in range(self.count))

    def forward(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x


class ModuleList(Sequential):
    def __init__(self, layers: list[Any]):
        super().__init__(*layers)


class Normalisation(Module):
    """Scale and shift, ones and zeros at first."""

    def __init__(self, width: int):
        super().__init__()
        self.weight, self.bias = np.ones(width, np.float32), np.zeros(width, np.float32)


class BatchStatistics(Normalisation):
    """And what BatchNorm keeps of the batches it has seen."""

    def __init__(self, channels: int):
        super().__init__(channels)
        self.running_mean, self.running_var = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        self.buffers = ("running_mean", "running_var")


class Matrix(Module):
    """Weight [outputs, inputs] and bias."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.bias = np.zeros((outputs, inputs), np.float32), np.zeros(outputs, np.float32)


class Filters(Module):
    """Weight [outputs, inputs / groups, kernel, kernel], and a bias where asked for."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True,
                 groups: int = 1):
        super().__init__()
        self.weight = np.zeros((outputs, inputs // groups, kernel, kernel), np.float32)
        self.bias = np.zeros(outputs, np.float32) if bias else None
        self.stride, self.padding, self.groups = stride, padding, groups


class Table(Module):
    """Weight [count, width]."""

    def __init__(self, count: int, width: int):
        super().__init__()
        self.weight = np.zeros((count, width), np.float32)


class Pool(Module):
    """Windows of a pooling."""

    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0):
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride or kernel, padding


class Gates(Module):
    """What one layer of an LSTM holds."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.weight_ih_l0 = np.zeros((4 * hidden, inputs), np.float32)
        self.weight_hh_l0 = np.zeros((4 * hidden, hidden), np.float32)
        self.bias_ih_l0, self.bias_hh_l0 = np.zeros(4 * hidden, np.float32), np.zeros(4 * hidden, np.float32)


# ---------------------------------------------------------------- optimizers

def adam(values: Arrays, gradients: Arrays, slots: Arrays, sqrt: Any, lr: float, decay: float) -> tuple[Arrays, Arrays]:
    """Adam, with decoupled weight decay: new values and new slots."""
    count = slots["count"] + 1
    new, kept = {}, {"count": count}
    for name, value in values.items():
        gradient = gradients[name]
        first = 0.9 * slots[f"{name}.first"] + 0.1 * gradient
        second = 0.999 * slots[f"{name}.second"] + 0.001 * gradient * gradient
        step = (first / (1 - 0.9**count)) / (sqrt(second / (1 - 0.999**count)) + 1e-8)
        new[name] = value * (1 - lr * decay) - lr * step
        kept |= {f"{name}.first": first, f"{name}.second": second}
    return new, kept


def sgd(values: Arrays, gradients: Arrays, slots: Arrays, lr: float) -> tuple[Arrays, Arrays]:
    """SGD with momentum 0.9; the first step starts from nothing, which gives the same numbers."""
    kept = {f"{name}.first": 0.9 * slots[f"{name}.first"] + gradients[name] for name in values}
    return {name: value - lr * kept[f"{name}.first"] for name, value in values.items()}, kept


class Optimizers:
    """`optim` of a workload: constructors that give the update rule (parameters, gradients, slots) -> new of both."""

    def __init__(self, sqrt: Any, zeros: Any):
        self.sqrt, self.zeros = sqrt, zeros

    def Adam(self, _: Any, lr: float) -> Any:
        return lambda v, g, s: adam(v, g, s, self.sqrt, lr, 0.0)

    def AdamW(self, _: Any, lr: float) -> Any:
        return lambda v, g, s: adam(v, g, s, self.sqrt, lr, 0.01)

    def SGD(self, _: Any, lr: float, momentum: float) -> Any:
        return lambda v, g, s: sgd(v, g, s, lr)

    def slots_of(self, values: Arrays) -> Arrays:
        """The start of what an optimizer keeps."""
        found = {f"{name}.{slot}": self.zeros(value.shape) for name, value in values.items()
                 for slot in ("first", "second")}
        return found | {"count": self.zeros(())}
