"""One more node for a random ONNX model: an operator, its inputs and attributes, and what PyTorch says it gives.

A family picks values that there are, computes by PyTorch what the node gives, and adds the node.  It raises Skip where
nothing fits.  Attributes are drawn from all that the operator allows, small sizes included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

torch = pytest.importorskip("torch")     # whose operators say what is expected
F = torch.nn.functional

MAX_ELEMENTS, LARGEST = 3000, 1e5
CODES = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE, torch.int64: TensorProto.INT64,
         torch.int32: TensorProto.INT32, torch.bool: TensorProto.BOOL}
FLOATS, INTEGERS = (torch.float32, torch.float64), (torch.int64, torch.int32)
NUMBERS = FLOATS + INTEGERS


class Skip(Exception):
    """Nothing that there is fits this operator."""


class Making:
    """A model that grows: its values as PyTorch has them, and its nodes."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.values: dict[str, torch.Tensor] = {}
        self.inputs: dict[str, torch.Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: list[Any] = []

    def input(self, value: torch.Tensor) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.values[name] = value
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape: int, dtype: torch.dtype = torch.float32, low: int = -8, high: int = 8) -> torch.Tensor:
        """Multiples of an eighth."""
        found = [self.rng.randint(low, high) / 8 for _ in range(math.prod(shape))]
        return torch.tensor(found, dtype=dtype).reshape(shape)

    def held(self, value: torch.Tensor) -> str:
        return self.constant(value.numpy(), value.numpy().dtype)

    def pick(self, fits: Callable[[torch.Tensor], bool] = lambda x: True) -> tuple[str, torch.Tensor]:
        """A value that fits, the newest ones rather."""
        found = [(name, x) for name, x in self.values.items() if fits(x)]
        if not found:
            raise Skip
        return self.rng.choice(found[-4:] if self.rng.random() < 0.5 else found)

    def floats(self, rank: int | None = None, least: int = 0) -> tuple[str, torch.Tensor]:
        return self.pick(lambda x: x.dtype in FLOATS and x.ndim >= least and (rank is None or x.ndim == rank))

    def numbers(self, least: int = 0) -> tuple[str, torch.Tensor]:
        return self.pick(lambda x: x.dtype in NUMBERS and x.ndim >= least)

    def add(self, kind: str, inputs: Sequence[str], *results: torch.Tensor, **attributes: Any) -> list[str]:
        """A node, unless its results are too large."""
        for x in results:
            large = x.dtype is not torch.bool and bool((x.abs() > LARGEST).any())
            if x.numel() > MAX_ELEMENTS or x.dtype not in CODES or large:
                raise Skip
            if x.dtype in FLOATS and not bool(torch.isfinite(x).all()) and self.rng.random() < 0.8:
                raise Skip
        names = [f"v{len(self.values) + k}" for k in range(len(results))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        self.values.update(zip(names, (x.contiguous() for x in results), strict=True))
        return names

    def check_order(self, name: str, x: torch.Tensor, axis: int) -> None:
        """Elements that were computed may be equal but for rounding, which decides which one is first."""
        if x.dtype in FLOATS and name not in self.inputs:
            ordered = torch.sort(x, dim=axis)[0]
            if bool((ordered.diff(dim=axis) < 1e-3 * (1 + ordered.narrow(axis, 1, max(0, x.shape[axis] - 1)).abs())).any()):
                raise Skip

    def axis(self, x: torch.Tensor) -> int:
        if x.ndim == 0:
            raise Skip
        return self.rng.randrange(-x.ndim, x.ndim)


# ---------------------------------------------------------------- element by element

def hard_sigmoid(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    return (alpha * x + beta).clamp(0, 1)


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Relu": F.relu, "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Exp": torch.exp, "Sqrt": torch.sqrt,
    "Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round, "Erf": torch.erf, "Softplus": F.softplus,
    "Softsign": F.softsign, "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan, "Reciprocal": torch.reciprocal,
    "Log": torch.log, "Sinh": torch.sinh, "Cosh": torch.cosh, "Asin": torch.asin, "Acos": torch.acos,
    "Atan": torch.atan, "Asinh": torch.asinh, "Acosh": torch.acosh, "Atanh": torch.atanh, "HardSwish": F.hardswish,
    "Mish": F.mish, "Identity": lambda x: x.clone(), "Selu": F.selu, "Elu": F.elu, "IsNaN": torch.isnan,
    "IsInf": torch.isinf, "Gelu": F.gelu}


def unary(m: Making) -> None:
    name, x = m.floats()
    kind = m.rng.choice(list(UNARY))
    m.add(kind, [name], UNARY[kind](x))


def signs(m: Making) -> None:
    name, x = m.numbers()
    kind, call = m.rng.choice([("Abs", torch.abs), ("Neg", torch.neg), ("Sign", torch.sign)])
    m.add(kind, [name], call(x))


def parametrised(m: Making) -> None:
    name, x = m.floats()
    a, b = m.rng.choice([0.0, 0.25, 1.0, 1.5]), m.rng.choice([0.25, 0.5])
    calls: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
        ("Elu", lambda x: F.elu(x, a), {"alpha": a}), ("LeakyRelu", lambda x: F.leaky_relu(x, a), {"alpha": a}),
        ("ThresholdedRelu", lambda x: F.threshold(x, a, 0), {"alpha": a}), ("Celu", lambda x: F.celu(x, b), {"alpha": b}),
        ("HardSigmoid", lambda x: hard_sigmoid(x, b, a), {"alpha": b, "beta": a}),
        ("Gelu", lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
        ("Shrink", lambda x: torch.where(x < -b, x + a, torch.where(x > b, x - a, torch.zeros_like(x))),
         {"lambd": b, "bias": a})]
    kind, call, attributes = m.rng.choice(calls)
    m.add(kind, [name], call(x), **attributes)


BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Less": torch.lt, "Greater": torch.gt, "Equal": torch.eq,
    "LessOrEqual": torch.le, "GreaterOrEqual": torch.ge, "Max": torch.maximum, "Min": torch.minimum}


def joined(x: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Whether another tensor broadcasts with this one."""
    def fits(y: torch.Tensor) -> bool:
        return y.dtype is x.dtype and all(a == b or 1 in (a, b) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))
    return fits


def pair(m: Making, dtypes: Sequence[torch.dtype]) -> tuple[str, torch.Tensor, str, torch.Tensor]:
    """Two values that broadcast; the second may be a constant."""
    name, x = m.pick(lambda x: x.dtype in dtypes)
    if m.rng.random() < 0.3:
        y = m.weight(*[m.rng.choice([n, 1]) for n in x.shape[m.rng.randint(0, x.ndim):]]) * 8
        y = y.to(x.dtype) if x.dtype is torch.bool or x.dtype in INTEGERS else (y / 8).to(x.dtype)
        return name, x, m.held(y), y
    other, y = m.pick(joined(x))
    return (name, x, other, y) if m.rng.random() < 0.5 else (other, y, name, x)


def binary(m: Making) -> None:
    name, x, other, y = pair(m, NUMBERS)
    kind = m.rng.choice(list(BINARY))
    m.add(kind, [name, other], BINARY[kind](x, y))


def divided(m: Making) -> None:
    name, x, other, y = pair(m, NUMBERS)
    if x.dtype in INTEGERS:
        if bool((y == 0).any()):
            raise Skip
        kind = m.rng.choice(["Div", "Mod", "Mod fmod"])
        found = {"Div": lambda: torch.div(x, y, rounding_mode="trunc"), "Mod": lambda: torch.remainder(x, y),
                 "Mod fmod": lambda: torch.fmod(x, y)}[kind]()
    else:
        kind = m.rng.choice(["Div", "Mod fmod", "Pow"])
        found = {"Div": lambda: x / y, "Mod fmod": lambda: torch.fmod(x, y), "Pow": lambda: torch.pow(x, y)}[kind]()
    m.add(kind.split()[0], [name, other], found, **({"fmod": 1} if "fmod" in kind else {}))


def logical(m: Making) -> None:
    name, x, other, y = pair(m, [torch.bool])
    kind, call = m.rng.choice([("And", torch.logical_and), ("Or", torch.logical_or), ("Xor", torch.logical_xor)])
    if m.rng.random() < 0.2:
        m.add("Not", [name], torch.logical_not(x))
    else:
        m.add(kind, [name, other], call(x, y))


def chosen(m: Making) -> None:
    name, x, other, y = pair(m, NUMBERS)
    both = torch.broadcast_shapes(x.shape, y.shape)
    mask, condition = m.pick(lambda c: c.dtype is torch.bool and joined(torch.empty(both, dtype=torch.bool))(c))
    m.add("Where", [mask, name, other], torch.where(condition, x, y))


def clipped(m: Making) -> None:
    name, x = m.numbers()
    low, high = (m.rng.choice([None, bound]) for bound in (-1, 2))
    inputs = [name] + ["" if b is None else m.held(torch.tensor(b, dtype=x.dtype)) for b in (low, high)]
    found = x if low is None else torch.maximum(x, torch.tensor(low, dtype=x.dtype))
    m.add("Clip", inputs, found if high is None else torch.minimum(found, torch.tensor(high, dtype=x.dtype)))


def cast(m: Making) -> None:
    name, x = m.pick()
    to = m.rng.choice(list(CODES))
    if x.dtype in FLOATS and to in INTEGERS and not bool(torch.isfinite(x).all()):
        raise Skip
    m.add("Cast", [name], x.to(to), to=CODES[to])


def sums_of_many(m: Making) -> None:
    name, x = m.floats()
    names, values = [name], [x]
    for _ in range(m.rng.randint(0, 2)):
        other, y = m.pick(joined(torch.broadcast_tensors(*values)[0]))
        names.append(other), values.append(y)
    whole = torch.stack(torch.broadcast_tensors(*values))
    kind = m.rng.choice(["Sum", "Mean", "Max", "Min"])
    found = {"Sum": whole.sum(0), "Mean": whole.mean(0), "Max": whole.amax(0), "Min": whole.amin(0)}[kind]
    m.add(kind, names, found)


# ---------------------------------------------------------------- reductions, orders

REDUCED: dict[str, Callable[..., torch.Tensor]] = {
    "ReduceSum": torch.sum, "ReduceMean": torch.mean, "ReduceMax": torch.amax, "ReduceMin": torch.amin,
    "ReduceL1": lambda x, d, k: x.abs().sum(d, k), "ReduceL2": lambda x, d, k: (x * x).sum(d, k).sqrt(),
    "ReduceSumSquare": lambda x, d, k: (x * x).sum(d, k), "ReduceLogSumExp": torch.logsumexp,
    "ReduceLogSum": lambda x, d, k: x.sum(d, k).log(), "ReduceProd": lambda x, d, k: products(x, d, k)}


def products(x: torch.Tensor, dims: Sequence[int], keep: bool) -> torch.Tensor:
    for d in sorted((d % x.ndim for d in dims), reverse=True):
        x = x.prod(d, keep)
    return x


def reduced(m: Making) -> None:
    kind = m.rng.choice(list(REDUCED))
    whole = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare")
    name, x = m.numbers(1) if kind in whole else m.floats(least=1)
    keep = m.rng.random() < 0.5
    if m.rng.random() < 0.15:
        if m.rng.random() < 0.5:
            m.add(kind, [name], REDUCED[kind](x, tuple(range(x.ndim)), keep).to(x.dtype), keepdims=int(keep))
        elif kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"):
            m.add(kind, [name], x.clone(), keepdims=int(keep), noop_with_empty_axes=1)
        return
    dims = m.rng.sample(range(x.ndim), m.rng.randint(1, x.ndim))
    if kind in ("ReduceMax", "ReduceMin") and any(x.shape[d] == 0 for d in dims):
        raise Skip
    axes = m.constant([d - x.ndim if m.rng.random() < 0.3 else d for d in dims])
    m.add(kind, [name, axes], REDUCED[kind](x, tuple(dims), keep).to(x.dtype), keepdims=int(keep))


def extreme_places(m: Making) -> None:
    name, x = m.numbers(1)
    axis, keep, last = m.axis(x), m.rng.random() < 0.5, m.rng.random() < 0.3
    if x.shape[axis] == 0:
        raise Skip
    m.check_order(name, x, axis)
    kind = m.rng.choice(["ArgMax", "ArgMin"])
    best = x.amax(axis, True) if kind == "ArgMax" else x.amin(axis, True)
    places = torch.arange(x.shape[axis]).reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])
    found = torch.where(x == best, places, -1 if last else x.shape[axis])
    found = found.amax(axis, keep) if last else found.amin(axis, keep)
    if x.dtype in FLOATS and not bool(torch.isfinite(x).all()):
        raise Skip
    m.add(kind, [name], found, axis=axis, keepdims=int(keep), **({"select_last_index": 1} if last else {}))


def distributions(m: Making) -> None:
    name, x = m.floats(least=1)
    axis = m.axis(x)
    kind = m.rng.choice(["Softmax", "LogSoftmax", "Hardmax"])
    if kind == "Hardmax":
        m.check_order(name, x, axis)
        first = torch.argmax(x, axis, keepdim=True) if x.shape[axis] else None
        if first is None or bool((x == x.amax(axis, True)).sum(axis).gt(1).any()):
            raise Skip
        found = torch.zeros_like(x).scatter_(axis, first, 1)
    else:
        found = (F.softmax if kind == "Softmax" else F.log_softmax)(x, axis)
    m.add(kind, [name], found, axis=axis)


def running_sums(m: Making) -> None:
    name, x = m.numbers(1)
    axis, exclusive, backwards = m.axis(x), m.rng.random() < 0.4, m.rng.random() < 0.4
    y = x.flip(axis) if backwards else x
    total = y.cumsum(axis).to(x.dtype)
    total = total - y if exclusive else total
    m.add("CumSum", [name, m.constant(axis)], total.flip(axis) if backwards else total, exclusive=int(exclusive),
          reverse=int(backwards))


def largest(m: Making) -> None:
    name, x = m.numbers(1)
    axis, most = m.axis(x), m.rng.random() < 0.6
    m.check_order(name, x, axis)
    k = m.rng.randint(0, x.shape[axis])
    order = torch.argsort(x, dim=axis, descending=most, stable=True)
    places = order.narrow(axis, 0, k)
    if x.dtype in FLOATS and bool(x.isnan().any()):
        raise Skip
    m.add("TopK", [name, m.constant([k])], torch.gather(x, axis, places), places, axis=axis, largest=int(most))


# ---------------------------------------------------------------- shapes

def transposed(m: Making) -> None:
    name, x = m.pick()
    axes = m.rng.sample(range(x.ndim), x.ndim)
    if m.rng.random() < 0.2 or not axes:
        m.add("Transpose", [name], x.permute(tuple(reversed(range(x.ndim)))))
    else:
        m.add("Transpose", [name], x.permute(axes), perm=axes)


def factors(n: int, rng: Random) -> list[int]:
    """Sizes whose product is n."""
    found = []
    while n > 1 and len(found) < 4:
        size = rng.choice([d for d in range(2, n + 1) if n % d == 0])
        found.append(size)
        n //= size
    return found + [n] * (n != 1) + [1] * rng.choice([0, 0, 1])


def reshaped(m: Making) -> None:
    name, x = m.pick(lambda x: x.numel() > 0)
    sizes = factors(x.numel(), m.rng)
    m.rng.shuffle(sizes)
    written = list(sizes)
    if written and m.rng.random() < 0.5:
        written[m.rng.randrange(len(written))] = -1
    for k, n in enumerate(sizes):
        if k < x.ndim and x.shape[k] == n and m.rng.random() < 0.5:
            written[k] = 0
    m.add("Reshape", [name, m.constant(written)], x.reshape(sizes))


def reshaped_by_its_shape(m: Making) -> None:
    """Sizes that are computed from sizes: the first axis stays, the others are one."""
    name, x = m.pick(lambda x: x.ndim >= 2 and x.numel() > 0)
    kept = m.rng.randrange(x.ndim)
    shape = m.add("Shape", [name], torch.tensor(x.shape))[0]
    size = m.add("Gather", [shape, m.constant([kept])], torch.tensor([x.shape[kept]]))[0]
    if m.rng.random() < 0.5:
        total = m.add("Size", [name], torch.tensor(x.numel()))[0]
        rest = m.add("Div", [total, size], torch.tensor([x.numel() // x.shape[kept]]))[0]
    else:
        rest = m.constant([-1])
    target = torch.tensor([x.shape[kept], x.numel() // x.shape[kept]])
    sizes = m.add("Concat", [size, rest], torch.tensor([x.shape[kept], -1]) if rest.startswith("c") else target, axis=0)
    m.add("Reshape", [name, *sizes], x.reshape(x.shape[kept], -1))


def flattened(m: Making) -> None:
    name, x = m.pick()
    axis = m.rng.randint(-x.ndim, x.ndim)
    split = axis % x.ndim if axis < 0 else axis
    m.add("Flatten", [name], x.reshape(math.prod(x.shape[:split]), math.prod(x.shape[split:])), axis=axis)


def squeezed(m: Making) -> None:
    if m.rng.random() < 0.5:
        name, x = m.pick(lambda x: 1 in x.shape)
        ones = [k for k, n in enumerate(x.shape) if n == 1]
        axes = sorted(m.rng.sample(ones, m.rng.randint(1, len(ones))))
        inputs = [name, m.constant([a - x.ndim if m.rng.random() < 0.3 else a for a in axes])]
        if len(axes) == len(ones) and m.rng.random() < 0.3:
            inputs.pop()
        m.add("Squeeze", inputs, x.reshape([n for k, n in enumerate(x.shape) if k not in axes]))
    else:
        name, x = m.pick(lambda x: x.ndim < 4)
        rank = x.ndim + m.rng.randint(1, 2)
        axes = sorted(m.rng.sample(range(rank), rank - x.ndim))
        found = x
        for a in axes:
            found = found.unsqueeze(a)
        m.add("Unsqueeze", [name, m.constant([a - rank if m.rng.random() < 0.3 else a for a in axes])], found)


def concatenated(m: Making) -> None:
    name, x = m.pick(lambda x: x.ndim > 0)
    axis = m.axis(x)
    others = [m.pick(lambda y: y.dtype is x.dtype and y.ndim == x.ndim and all(
        a == b for k, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if k != axis % x.ndim))
        for _ in range(m.rng.randint(0, 2))]
    m.add("Concat", [name, *[n for n, _ in others]], torch.cat([x, *[y for _, y in others]], axis), axis=axis)


def split(m: Making) -> None:
    name, x = m.pick(lambda x: x.ndim > 0)
    axis = m.axis(x)
    size, parts = x.shape[axis], m.rng.randint(1, 3)
    if m.rng.random() < 0.5:
        cuts = sorted(m.rng.randint(0, size) for _ in range(parts - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        m.add("Split", [name, m.constant(sizes)], *torch.split(x, sizes, axis), axis=axis)
    else:
        each = -(-size // parts)
        if each == 0 or -(-size // each) != parts:
            raise Skip
        m.add("Split", [name], *torch.split(x, each, axis), axis=axis, num_outputs=parts)


def sliced(m: Making) -> None:
    name, x = m.pick(lambda x: x.ndim > 0)
    axes = m.rng.sample(range(x.ndim), m.rng.randint(1, x.ndim))
    found, starts, ends, steps = x.numpy(), [], [], []
    where: list[Any] = [slice(None)] * x.ndim
    for a in axes:
        n, step = x.shape[a], m.rng.choice([1, 1, 1, 2, 3, -1, -2])
        start, end = (m.rng.choice([m.rng.randint(-n - 2, n + 2), m.rng.randint(0, n)]) for _ in range(2))
        if m.rng.random() < 0.2:
            end = (1 << 62) if step > 0 else -(1 << 62)
        starts.append(start), ends.append(end), steps.append(step)
        where[a] = slice(*limits(n, start, end, step), step)
    found = found[tuple(where)]
    signed = [a - x.ndim if m.rng.random() < 0.3 else a for a in axes]
    m.add("Slice", [name, *map(m.constant, (starts, ends, signed, steps))], torch.tensor(found.copy()))


def limits(n: int, start: int, end: int, step: int) -> tuple[int | None, int | None]:
    """What the standard makes of bounds: negative ones count from the end, then all are clamped."""
    start, end = (b + n if b < 0 else b for b in (start, end))
    if step > 0:
        return min(max(start, 0), n), min(max(end, 0), n)
    start, end = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
    return start, None if end < 0 else end


def padded(m: Making) -> None:
    mode = m.rng.choice(["constant", "constant", "edge", "reflect", "wrap"])
    name, x = m.pick(lambda x: x.ndim > 0 and x.dtype in NUMBERS and x.numel() > 0)
    most = [2 if mode in ("constant", "edge") else min(2, n - (mode == "reflect")) for n in x.shape]
    low = [m.rng.randint(-1 if mode == "constant" and n > 2 else 0, k) for k, n in zip(most, x.shape, strict=True)]
    high = [m.rng.randint(-1 if mode == "constant" and n > 2 else 0, k) for k, n in zip(most, x.shape, strict=True)]
    inputs, value = [name, m.constant(low + high)], 0
    if mode == "constant" and m.rng.random() < 0.5:
        value = 3
        inputs.append(m.held(torch.tensor(3, dtype=x.dtype)))
    cut = x.numpy()[tuple(slice(max(0, -a), n - max(0, -b)) for a, b, n in zip(low, high, x.shape, strict=True))]
    pairs = [(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True)]
    found = np.pad(cut, pairs, mode, **({"constant_values": value} if mode == "constant" else {}))
    m.add("Pad", inputs, torch.tensor(found), mode=mode)


def repeated(m: Making) -> None:
    name, x = m.pick(lambda x: x.ndim > 0)
    if m.rng.random() < 0.5:
        times = [m.rng.randint(0 if m.rng.random() < 0.1 else 1, 3) for _ in x.shape]
        m.add("Tile", [name, m.constant(times)], torch.tensor(np.tile(x.numpy(), times)))
    else:
        target = [m.rng.randint(1, 3) for _ in range(m.rng.randint(0, 1))] + [
            m.rng.choice([n, 1]) if n != 1 else m.rng.randint(1, 3) for n in x.shape]
        m.add("Expand", [name, m.constant(target)], x.expand(torch.broadcast_shapes(x.shape, target)).clone())


def made_new(m: Making) -> None:
    name, x = m.pick()
    match m.rng.randrange(4):
        case 0:
            shape = m.add("Shape", [name], torch.tensor(x.shape, dtype=torch.int64))[0]
            m.add("ConstantOfShape", [shape], torch.full(x.shape, 2.5),
                  value=helper.make_tensor("value", TensorProto.FLOAT, [1], [2.5]))
        case 1:
            start, step = m.rng.randint(-3, 3), m.rng.choice([-2, -1, 1, 2])
            end = start + step * m.rng.randint(0, 5)
            m.add("Range", [m.constant(start), m.constant(end), m.constant(step)], torch.arange(start, end, step))
        case 2:
            if x.ndim != 2 or x.dtype not in NUMBERS:
                raise Skip
            k = m.rng.randint(-2, 2)
            m.add("EyeLike", [name], torch.tensor(np.eye(*x.shape, k, x.numpy().dtype)), k=k)
        case 3:
            start = m.rng.randint(0, x.ndim)
            m.add("Shape", [name], torch.tensor(x.shape[start:], dtype=torch.int64), start=start)


def triangles(m: Making) -> None:
    name, x = m.numbers(2)
    k, upper = m.rng.randint(-3, 3), m.rng.randint(0, 1)
    m.add("Trilu", [name, m.constant(k)], (torch.triu if upper else torch.tril)(x, k), upper=upper)


# ---------------------------------------------------------------- indices

def places(m: Making, n: int, *shape: int) -> torch.Tensor:
    if n == 0:
        raise Skip
    return torch.tensor([m.rng.randrange(-n, n) for _ in range(math.prod(shape))], dtype=torch.int64).reshape(shape)


def gathered(m: Making) -> None:
    name, x = m.pick(lambda x: x.ndim > 0)
    axis = m.axis(x)
    match m.rng.randrange(3):
        case 0:
            index = places(m, x.shape[axis], *[m.rng.randint(1, 3) for _ in range(m.rng.randint(0, 2))])
            found = torch.tensor(np.take(x.numpy(), index.numpy(), axis))
            m.add("Gather", [name, m.held(index)], found, axis=axis)
        case 1:
            index = places(m, x.shape[axis], *[m.rng.randint(1, n) if n else 0 for n in x.shape])
            found = torch.gather(x, axis, index % x.shape[axis])
            m.add("GatherElements", [name, m.held(index)], found, axis=axis)
        case 2:
            depth = m.rng.randint(1, x.ndim)
            rows = m.rng.randint(1, 3)
            columns = [places(m, n, rows) for n in x.shape[:depth]]
            m.add("GatherND", [name, m.held(torch.stack(columns, -1))], x[tuple(columns)])


def scattered(m: Making) -> None:
    name, x = m.floats(least=1)
    axis = m.axis(x)
    shape = [m.rng.randint(1, n) if n else 0 for n in x.shape]
    updates = m.weight(*shape, dtype=x.dtype)
    kind, ours = m.rng.choice([("none", None), ("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")])
    index = places(m, x.shape[axis], *shape)
    if kind == "none":
        order = torch.tensor(m.rng.sample(range(x.shape[axis]), shape[axis]))
        index = order.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]).expand(shape).contiguous()
    positive = index % x.shape[axis]
    found = x.scatter(axis, positive, updates) if ours is None else x.scatter_reduce(axis, positive, updates, ours)
    m.add("ScatterElements", [name, m.held(index), m.held(updates)], found, axis=axis, reduction=kind)


def scattered_rows(m: Making) -> None:
    name, x = m.floats(least=2)
    rows = m.rng.randint(1, max(1, x.shape[0]))
    if not x.numel():
        raise Skip
    index = torch.tensor(m.rng.sample(range(x.shape[0]), rows))
    updates = m.weight(rows, *x.shape[1:], dtype=x.dtype)
    kind = m.rng.choice(["none", "add"])
    found = x.index_copy(0, index, updates) if kind == "none" else x.index_add(0, index, updates)
    m.add("ScatterND", [name, m.held(index[:, None]), m.held(updates)], found, reduction=kind)


def one_hot(m: Making) -> None:
    depth = m.rng.randint(1, 4)
    index = places(m, depth, *[m.rng.randint(1, 3) for _ in range(m.rng.randint(0, 2))])
    axis = m.rng.randint(-index.ndim - 1, index.ndim)
    hot = F.one_hot(index % depth, depth).to(torch.float32) * 4 - 1
    found = hot.movedim(-1, axis)
    m.add("OneHot", [m.held(index), m.constant(depth), m.constant([-1, 3], np.float32)], found, axis=axis)


def found_places(m: Making) -> None:
    name, x = m.numbers(1)
    if m.rng.random() < 0.5:
        m.add("NonZero", [name], torch.nonzero(x).T.contiguous())
        return
    axis = m.axis(x)
    keep = torch.tensor([m.rng.random() < 0.5 for _ in range(x.shape[axis])], dtype=torch.bool)
    m.add("Compress", [name, m.held(keep)], x.index_select(axis, keep.nonzero()[:, 0]), axis=axis)


# ---------------------------------------------------------------- layers

def multiplied(m: Making) -> None:
    name, x = m.floats(least=1)
    if m.rng.random() < 0.5:
        y = m.weight(x.shape[-1], m.rng.randint(1, 4), dtype=x.dtype)
        other = m.held(y)
    else:
        other, y = m.pick(lambda y: y.dtype is x.dtype and y.ndim > 0 and y.shape[-min(y.ndim, 2)] == x.shape[-1]
                          and all(a == b or 1 in (a, b) for a, b in zip(x.shape[-3::-1], y.shape[-3::-1], strict=False)))
    m.add("MatMul", [name, other], x @ y)


def affine(m: Making) -> None:
    name, x = m.floats(rank=2)
    a, b, alpha, beta = m.rng.random() < 0.4, m.rng.random() < 0.4, m.rng.choice([1.0, 0.5]), m.rng.choice([1.0, 2.0])
    left, width = x.T if a else x, m.rng.randint(1, 4)
    y = m.weight(*((width, left.shape[1]) if b else (left.shape[1], width)), dtype=x.dtype)
    inputs, found = [name, m.held(y)], alpha * (left @ (y.T if b else y))
    if m.rng.random() < 0.7:
        bias = m.weight(*m.rng.choice([(width,), (1, width), (left.shape[0], width), (left.shape[0], 1), ()]), dtype=x.dtype)
        inputs.append(m.held(bias))
        found = found + beta * bias
    m.add("Gemm", inputs, found, transA=int(a), transB=int(b), alpha=alpha, beta=beta)


def spatial(m: Making) -> tuple[str, torch.Tensor, int]:
    name, x = m.pick(lambda x: x.dtype is torch.float32 and x.ndim in (3, 4, 5) and x.numel() > 0)
    return name, x, x.ndim - 2


def grown(x: torch.Tensor, pads: Sequence[int], value: float = 0) -> torch.Tensor:
    n = len(pads) // 2
    listed = [p for k in reversed(range(n)) for p in (pads[k], pads[n + k])]
    return F.pad(x, listed, value=value)


def convolved(m: Making) -> None:
    name, x, n = spatial(m)
    groups = m.rng.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
    kernel, strides, dilations = ([m.rng.randint(1, k) for _ in range(n)] for k in (3, 2, 2))
    pads = [m.rng.randint(0, 2) for _ in range(2 * n)]
    out = groups * m.rng.randint(1, 2)
    weight = m.weight(out, x.shape[1] // groups, *kernel)
    bias = m.weight(out) if m.rng.random() < 0.6 else None
    call = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    found = call(grown(x, pads), weight, bias, tuple(strides), 0, tuple(dilations), groups)
    m.add("Conv", [name, m.held(weight)] + ([m.held(bias)] if bias is not None else []), found, group=groups,
          strides=strides, dilations=dilations, pads=pads, kernel_shape=kernel)


def deconvolved(m: Making) -> None:
    name, x, n = spatial(m)
    groups = m.rng.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
    kernel, strides, dilations = ([m.rng.randint(1, k) for _ in range(n)] for k in (3, 2, 2))
    pads = [m.rng.randint(0, 1) for _ in range(n)]
    more = [m.rng.randint(0, max(0, s - 1)) for s in strides]
    weight = m.weight(x.shape[1], m.rng.randint(1, 2), *kernel)
    call: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    found = call(x, weight, None, tuple(strides), tuple(pads), tuple(more), groups, tuple(dilations))
    m.add("ConvTranspose", [name, m.held(weight)], found, group=groups, strides=strides, dilations=dilations,
          pads=pads * 2, output_padding=more, kernel_shape=kernel)


def pooled(m: Making) -> None:
    name, x, n = spatial(m)
    kernel, strides = ([m.rng.randint(1, 3) for _ in range(n)] for _ in range(2))
    pads = [m.rng.randint(0, k // 2) for k in kernel]
    ceil, count = m.rng.random() < 0.4, m.rng.random() < 0.5
    if m.rng.random() < 0.5:
        dilations = [m.rng.randint(1, 2) for _ in range(n)]
        call: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
        found = call(x, tuple(kernel), tuple(strides), tuple(pads), tuple(dilations), ceil)
        m.add("MaxPool", [name], found, kernel_shape=kernel, strides=strides, pads=pads * 2, ceil_mode=int(ceil),
              dilations=dilations)
    else:
        call = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
        found = call(x, tuple(kernel), tuple(strides), tuple(pads), ceil, count)
        m.add("AveragePool", [name], found, kernel_shape=kernel, strides=strides, pads=pads * 2,
              ceil_mode=int(ceil), count_include_pad=int(count))


def pooled_whole(m: Making) -> None:
    name, x, _ = spatial(m)
    dims = tuple(range(2, x.ndim))
    kind = m.rng.choice(["GlobalAveragePool", "GlobalMaxPool"])
    m.add(kind, [name], x.mean(dims, True) if kind == "GlobalAveragePool" else x.amax(dims, True))


def normalised(m: Making) -> None:
    name, x = m.pick(lambda x: x.dtype is torch.float32 and x.ndim >= 2 and x.numel() > 0)
    c, eps = x.shape[1], m.rng.choice([1e-5, 1e-2])
    kind = m.rng.choice(["BatchNormalization", "LayerNormalization", "InstanceNormalization", "RMSNormalization",
                         "LpNormalization", "MeanVarianceNormalization"])
    scale, bias = m.weight(c), m.weight(c)
    if kind == "BatchNormalization":
        mean, var = m.weight(c), m.weight(c, low=1)
        m.add(kind, [name, *map(m.held, (scale, bias, mean, var))], F.batch_norm(x, mean, var, scale, bias, eps=eps),
              epsilon=eps)
    elif kind == "InstanceNormalization":
        if x.ndim < 3 or math.prod(x.shape[2:]) < 2:
            raise Skip
        m.add(kind, [name, *map(m.held, (scale, bias))], F.instance_norm(x, weight=scale, bias=bias, eps=eps),
              epsilon=eps)
    elif kind == "LpNormalization":
        axis, p = m.axis(x), m.rng.choice([1, 2])
        length = x.norm(p, axis, True)
        m.add(kind, [name], x / length, axis=axis, p=p)
    elif kind == "MeanVarianceNormalization":
        axes = m.rng.sample(range(x.ndim), m.rng.randint(1, x.ndim))
        mean, var = x.mean(axes, True), x.var(axes, correction=0, keepdim=True)
        m.add(kind, [name], (x - mean) / (var.sqrt() + 1e-9), axes=axes)
    else:
        axis = m.axis(x)
        shape = x.shape[axis % x.ndim:]
        w, b = m.weight(*shape), m.weight(*shape)
        if kind == "RMSNormalization":
            m.add(kind, [name, m.held(w)], F.rms_norm(x, shape, w, eps), axis=axis, epsilon=eps)
        else:
            m.add(kind, [name, m.held(w), m.held(b)], F.layer_norm(x, shape, w, b, eps), axis=axis, epsilon=eps)


def rearranged(m: Making) -> None:
    name, x = m.pick(lambda x: x.dtype is torch.float32 and x.ndim == 4 and x.numel() > 0)
    b, c, h, w = x.shape
    s = m.rng.randint(1, 2)
    if m.rng.random() < 0.5:
        if h % s or w % s:
            raise Skip
        found = x.reshape(b, c, h // s, s, w // s, s).permute(0, 3, 5, 1, 2, 4).reshape(b, c * s * s, h // s, w // s)
        m.add("SpaceToDepth", [name], found, blocksize=s)
    else:
        if c % (s * s):
            raise Skip
        mode, k = m.rng.choice(["DCR", "CRD"]), c // (s * s)
        found = (x.reshape(b, s, s, k, h, w).permute(0, 3, 4, 1, 5, 2) if mode == "DCR" else
                 x.reshape(b, k, s, s, h, w).permute(0, 1, 4, 2, 5, 3)).reshape(b, k, h * s, w * s)
        m.add("DepthToSpace", [name], found, blocksize=s, mode=mode)


def resized(m: Making) -> None:
    name, x = m.pick(lambda x: x.dtype is torch.float32 and x.ndim == 4 and x.numel() > 0)
    sizes = [m.rng.randint(1, 2 * n) for n in x.shape[2:]]
    mode, way = m.rng.choice([("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel"),
                              ("cubic", "align_corners"), ("nearest", "asymmetric")])
    options: dict[str, Any] = {"mode": {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}[mode]}
    if mode != "nearest":
        options["align_corners"] = way == "align_corners"
    if way == "align_corners" and 1 in sizes:
        raise Skip
    extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
    m.add("Resize", [name, "", "", m.constant([*x.shape[:2], *sizes])], F.interpolate(x, sizes, **options), mode=mode,
          coordinate_transformation_mode=way, **extra)


def summed_by_letters(m: Making) -> None:
    name, x = m.floats(least=1)
    letters = "abcde"[:x.ndim]
    kept = m.rng.sample(letters, m.rng.randint(0, len(letters)))
    y = m.weight(x.shape[-1], 2, dtype=x.dtype)
    if m.rng.random() < 0.5:
        m.add("Einsum", [name, m.held(y)], torch.einsum(f"{letters},{letters[-1]}z->{''.join(kept)}z", x, y),
              equation=f"{letters},{letters[-1]}z->{''.join(kept)}z")
    else:
        m.add("Einsum", [name], torch.einsum(f"{letters}->{''.join(kept)}", x), equation=f"{letters}->{''.join(kept)}")


# ---------------------------------------------------------------- control flow

def branch(m: Making) -> None:
    name, x, other, y = pair(m, FLOATS)
    flag, condition = m.pick(lambda c: c.dtype is torch.bool and c.numel() == 1)
    single = m.add("Reshape", [flag, m.constant([1])], condition.reshape(1))[0]
    first, second = x + y, x * 2 - y
    graphs = []
    for kind, nodes in (("then", [("Add", [name, other])]), ("else", [("Add", [name, name]), ("Sub", ["t", other])])):
        made = [helper.make_node(op, read, ["t" if k + 1 < len(nodes) else f"{kind}_result"])
                for k, (op, read) in enumerate(nodes)]
        graphs.append(helper.make_graph(made, kind, [], [helper.make_tensor_value_info(
            f"{kind}_result", CODES[x.dtype], None)]))
    m.add("If", [single], first if bool(condition) else second, then_branch=graphs[0], else_branch=graphs[1])


def loop(m: Making) -> None:
    name, x = m.floats()
    times = m.rng.randint(0, 4)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["state", "half"], ["less"]), helper.make_node("Add", ["less", name], ["next"]),
         helper.make_node("Identity", ["more"], ["again"]), helper.make_node("Identity", ["next"], ["row"])],
        "body", [info("k", TensorProto.INT64, []), info("more", TensorProto.BOOL, []), info("state", CODES[x.dtype], None)],
        [info("again", TensorProto.BOOL, []), info("next", CODES[x.dtype], None), info("row", CODES[x.dtype], None)],
        [onnx.numpy_helper.from_array(np.array(0.5, x.numpy().dtype), "half")])
    state, rows = x, []
    for _ in range(times):
        state = state * 0.5 + x
        rows.append(state)
    if not rows:
        raise Skip
    m.add("Loop", [m.constant(times), "", name], state, torch.stack(rows), body=body)


FAMILIES: tuple[Callable[[Making], None], ...] = (
    unary, unary, signs, parametrised, binary, binary, divided, logical, chosen, clipped, cast, sums_of_many, reduced,
    reduced, extreme_places, distributions, running_sums, largest, transposed, reshaped, reshaped_by_its_shape,
    flattened, squeezed, concatenated, split, sliced, sliced, padded, repeated, made_new, triangles, gathered, gathered,
    scattered, scattered_rows, one_hot, found_places, multiplied, affine, convolved, deconvolved, pooled, pooled_whole,
    normalised, rearranged, resized, summed_by_letters, branch, loop)
