"""What `benchmarks.sweep` runs: operators on shapes and element types that no other table has, in two libraries' words.

    Case("sum over axis 1", lambda m, x: x.sum(axis=1), [f32(64, 257, 31)])     # m: the library; one way to say it
    Case("pad", lambda tn, x: tn.pad(...), [...], torch=lambda torch, x: ...)   # two ways

Sizes are odd and prime as often as not, and large enough (a megabyte or so) that what a call costs does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Function = Callable[..., Any]


@dataclass(frozen=True)
class Input:
    """An array of random elements of a type, integers below `most`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    most: int = 100
    positive: bool = False

    def array(self, seed: int) -> np.ndarray:
        """In float32 where NumPy has no such type."""
        random = np.random.default_rng(seed)
        if self.dtype == "bool":
            return random.random(self.shape) < 0.5
        if "int" in self.dtype:
            return random.integers(0, self.most, self.shape).astype(self.dtype)
        elements = random.standard_normal(self.shape)
        return (np.abs(elements) if self.positive else elements).astype(
            "float64" if self.dtype == "float64" else "float32")

    def __str__(self) -> str:
        return f"{SHORT.get(self.dtype, self.dtype)}{list(self.shape)}"


SHORT = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "uint8": "u8"}


@dataclass(frozen=True)
class Case:
    """A function of the library and the inputs; with `gradient`, its result and the pullback of that result."""

    name: str
    tenon: Function
    inputs: Sequence[Input]
    torch: Function | None = None           # where PyTorch says it otherwise
    gradient: bool = False
    random: bool = False                    # results of two libraries differ
    constants: int = 0                      # how many of the last inputs are weights of a network in use

    def __str__(self) -> str:
        shapes = [str(x) + (" constant" if k >= self.changing else "") for k, x in enumerate(self.inputs)]
        return f"{self.name}{' + gradient' if self.gradient else ''}  {' '.join(shapes)}"

    @property
    def changing(self) -> int:
        """How many inputs differ from call to call."""
        return len(self.inputs) - self.constants


def f32(*shape: int, positive: bool = False) -> Input:
    return Input(shape, positive=positive)


def f64(*shape: int) -> Input:
    return Input(shape, "float64")


def bf16(*shape: int) -> Input:
    return Input(shape, "bfloat16")


def i64(*shape: int, most: int = 100) -> Input:
    return Input(shape, "int64", most)


def i32(*shape: int, most: int = 100) -> Input:
    return Input(shape, "int32", most)


def mask(*shape: int) -> Input:
    return Input(shape, "bool")


def elementwise() -> Iterator[Case]:
    """Chains, broadcast in different places; functions; integers and truth values."""
    chain = "(x * w + b).tanh()", lambda m, x, w, b: (x * w + b).tanh()
    for kind in (f32, f64, bf16):
        yield Case(chain[0], chain[1], [kind(1021, 1031), kind(1031), kind(1031)])
        yield Case(chain[0], chain[1], [kind(1021, 1031), kind(1021, 1), kind(1031)])
        yield Case("x * 2 + y", lambda m, x, y: x * 2 + y, [kind(1_000_003), kind(1_000_003)])
    yield Case("x + y, outer", lambda m, x, y: x + y, [f32(1021, 1), f32(1, 1031)])
    yield Case("x * y, middle axis", lambda m, x, y: x * y, [f32(31, 37, 1031), f32(31, 1, 1031)])
    yield Case("x * y, channels", lambda m, x, y: x * y, [f32(8, 67, 43, 43), f32(67, 1, 1)])
    for name in ("exp", "log", "sin", "tanh", "sqrt", "sigmoid", "erf", "log1p", "rsqrt", "floor", "abs"):
        for kind in (f32, f64):
            yield Case(name, lambda m, x, name=name: getattr(m, name)(x),
                       [Input((1021, 1031), kind().dtype, positive=True)])
    for name in ("gelu", "silu", "softplus", "elu", "mish", "leaky_relu", "hardswish"):
        yield Case(name, lambda tn, x, name=name: getattr(tn, name)(x), [f32(1021, 1031)],
                   lambda torch, x, name=name: getattr(torch.nn.functional, name)(x), gradient=True)
    yield Case("x ** 3", lambda m, x: x ** 3, [f32(1_000_003)])
    yield Case("x ** y", lambda m, x, y: x ** y, [f32(1_000_003, positive=True), f32(1_000_003)])
    yield Case("x / y", lambda m, x, y: x / y, [f32(1_000_003), f32(1_000_003, positive=True)])
    yield Case("maximum - minimum", lambda m, x, y: m.maximum(x, y) - m.minimum(y, x),
               [f32(1_000_003), f32(1_000_003)])
    yield Case("clip", lambda m, x: x.clip(-1, 1), [f32(1_000_003)])
    yield Case("where", lambda m, c, x, y: m.where(c, x, y), [mask(1021, 1031), f32(1021, 1031), f32(1021, 1031)])
    yield Case("where, row", lambda m, c, x: m.where(c, x, 0.0), [mask(1031), f32(1021, 1031)])
    yield Case("masked_fill", lambda m, x, c: x.masked_fill(c, -1.0), [f32(64, 127, 127), mask(127, 127)])
    yield Case("x + y, integers", lambda m, x, y: x * 3 + y, [i64(1_000_003), i64(1_000_003)])
    yield Case("x // 7", lambda m, x: x // 7, [i64(1_000_003)])
    yield Case("x % 7", lambda m, x: x % 7, [i32(1_000_003)])
    yield Case("x // y", lambda m, x, y: x // (y + 1), [i64(1_000_003), i64(1_000_003)])
    yield Case("x & y ^ 5", lambda m, x, y: (x & y) ^ 5, [i32(1_000_003), i32(1_000_003)])
    yield Case("x < y", lambda m, x, y: x < y, [f32(1_000_003), f32(1_000_003)])
    yield Case("(x > 0) & (y < 0)", lambda m, x, y: (x > 0) & (y < 0), [f32(1_000_003), f32(1_000_003)])
    yield Case("~a | b", lambda m, a, b: ~a | b, [mask(4_000_037), mask(4_000_037)])
    yield Case("uint8 / 255", lambda m, x: x / 255, [Input((16, 3, 131, 131), "uint8")])


def conversions() -> Iterator[Case]:
    """From every common element type to the others."""
    types = "float32", "float64", "bfloat16", "int64", "int32", "uint8", "bool"
    for source in types:
        for target in types:
            if source != target and {source, target} & {"float32", "int64"}:
                yield Case(f"to {SHORT.get(target, target)}",
                           lambda m, x, target=target: x.astype(getattr(m, target)),
                           [Input((1_000_003,), source, positive=True)],
                           lambda torch, x, target=target: x.to(getattr(torch, target)))


def reductions() -> Iterator[Case]:
    """Over each axis and several, small and large, of several types."""
    for kind in (f32, f64, bf16):
        for axis in (0, 1, 2, (0, 1), (0, 2), (1, 2), None):
            yield Case(f"sum over {axis}", lambda m, x, axis=axis: x.sum(axis) if axis is not None else x.sum(),
                       [kind(61, 127, 131)])
    for kind in (f32, f64):
        for axis in (0, 1, 2, (0, 2)):
            for name in ("mean", "amax"):
                yield Case(f"{name} over {axis}", lambda m, x, axis=axis, name=name: getattr(m, name)(x, axis),
                           [kind(61, 127, 131)])
    for axis in (0, 1, 2):
        for name in ("argmax", "argmin", "var", "std", "logsumexp", "prod", "cumsum", "softmax", "log_softmax"):
            yield Case(f"{name} over {axis}", lambda m, x, axis=axis, name=name: getattr(m, name)(x, axis),
                       [f32(61, 127, 131)], None if name not in ("var", "std") else
                       lambda torch, x, axis=axis, name=name: getattr(torch, name)(x, axis, correction=0))
        for name in ("softmax", "log_softmax", "logsumexp"):
            yield Case(f"{name} over {axis}", lambda m, x, axis=axis, name=name: getattr(m, name)(x, axis),
                       [f32(61, 127, 131)], gradient=True)
    for shape, axis in (((1_000_003, 3), 0), ((1_000_003, 3), 1), ((3, 1_000_003), 0), ((3, 1_000_003), 1),
                        ((100_003, 7), 1), ((7, 100_003), 0), ((509, 2, 1021), 1), ((2, 509, 1021), 1)):
        for name in ("sum", "amax", "argmax", "softmax"):
            yield Case(f"{name} over {axis}", lambda m, x, axis=axis, name=name: getattr(m, name)(x, axis),
                       [f32(*shape)])
    yield Case("softmax over 0", lambda m, x: m.softmax(x, 0), [f32(7, 100_003)], gradient=True)
    yield Case("sum of products", lambda m, x, y: (x * y).sum(), [f32(1_000_003), f32(1_000_003)])
    yield Case("norm", lambda m, x: (x * x).sum(-1) ** 0.5, [f32(1021, 1031)])
    yield Case("any over 1", lambda m, x: (x > 3).any(1), [f32(1021, 1031)])
    yield Case("all", lambda m, x: (x > -9).all(), [f32(1021, 1031)])
    yield Case("sum, integers", lambda m, x: x.sum(0), [i64(1021, 1031)])
    yield Case("sum, int32", lambda m, x: x.sum(1), [i32(1021, 1031)])
    yield Case("count of true", lambda m, x: x.sum(), [mask(4_000_037)])
    yield Case("max, integers", lambda m, x: m.amax(x, 1), [i64(1021, 1031)])
    for kind in (f32, f64):
        yield Case("cumsum", lambda m, x: m.cumsum(x, 0), [kind(1_000_003)])
    for shape in ((1021, 1031), (4099, 67), (67, 4099)):
        yield Case("cumsum over 0", lambda m, x: m.cumsum(x, 0), [f32(*shape)])
    yield Case("cumsum, integers", lambda m, x: m.cumsum(x, 1), [i64(1021, 1031)])
    yield Case("cumprod over 1", lambda m, x: m.cumprod(x, 1), [f32(1021, 1031)])
    yield Case("cummax over 1", lambda tn, x: tn.cummax(x, 1), [f32(1021, 1031)],
               lambda torch, x: torch.cummax(x, 1)[0])


def norms() -> Iterator[Case]:
    """With gradients, of odd widths."""
    for width in (127, 768, 1031):
        yield Case("layer norm", lambda tn, x, w, b: tn.layer_norm(x, x.shape[-1], w, b),
                   [f32(1000, width), f32(width), f32(width)],
                   lambda torch, x, w, b: torch.layer_norm(x, x.shape[-1:], w, b), gradient=True)
        yield Case("rms norm", lambda tn, x, w: tn.rms_norm(x, x.shape[-1], w), [f32(1000, width), f32(width)],
                   lambda torch, x, w: torch.rms_norm(x, x.shape[-1:], w), gradient=True)
    yield Case("layer norm", lambda tn, x, w, b: tn.layer_norm(x, x.shape[-1], w, b),
               [f64(500, 1031), f64(1031), f64(1031)],
               lambda torch, x, w, b: torch.layer_norm(x, x.shape[-1:], w, b), gradient=True)
    for shape in ((16, 66, 31, 31), (7, 66, 57, 57), (256, 66)):
        for gradient in (False, True):
            yield Case("batch norm", lambda tn, x, w, b: tn.batch_norm(x, None, None, w, b, training=True),
                       [f32(*shape), f32(66), f32(66)], lambda torch, x, w, b:
                       torch.nn.functional.batch_norm(x, None, None, w, b, training=True), gradient=gradient)
    for gradient in (False, True):
        yield Case("group norm", lambda tn, x, w, b: tn.group_norm(x, 6, w, b), [f32(16, 66, 31, 31), f32(66), f32(66)],
                   lambda torch, x, w, b: torch.group_norm(x, 6, w, b), gradient=gradient)
        yield Case("instance norm", lambda tn, x: tn.instance_norm(x), [f32(16, 66, 31, 31)],
                   lambda torch, x: torch.nn.functional.instance_norm(x), gradient=gradient)


def moves() -> Iterator[Case]:
    """What only moves elements; PyTorch copies, as Tenon does."""
    for kind in (f32, f64, bf16):
        yield Case("transposed", lambda m, x: x.T, [kind(1021, 1031)], lambda torch, x: x.T.contiguous())
        yield Case("concatenate, axis 0", lambda m, x, y: m.concatenate([x, y], axis=0),
                   [kind(511, 1031), kind(509, 1031)])
        yield Case("concatenate, axis 1", lambda m, x, y: m.concatenate([x, y], axis=1),
                   [kind(1021, 511), kind(1021, 509)])
    for axes in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0)):
        yield Case(f"permuted {axes}", lambda m, x, axes=axes: m.permute(x, axes), [f32(61, 127, 131)],
                   lambda torch, x, axes=axes: x.permute(axes).contiguous())
    for axes in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0)):
        yield Case(f"permuted {axes}", lambda m, x, axes=axes: m.permute(x, axes), [f32(16, 31, 37, 67)],
                   lambda torch, x, axes=axes: x.permute(axes).contiguous())
    yield Case("permuted, narrow", lambda m, x: m.permute(x, (0, 2, 3, 1)), [f32(16, 3, 131, 131)],
               lambda torch, x: x.permute(0, 2, 3, 1).contiguous())
    for axis in (0, 1, 2):
        yield Case(f"stack, axis {axis}", lambda m, x, y, z, axis=axis: m.stack([x, y, z], axis),
                   [f32(509, 1031)] * 3)
        yield Case(f"flip, axis {axis}", lambda m, x, axis=axis: m.flip(x, (axis,)), [f32(61, 127, 131)])
        yield Case(f"roll, axis {axis}", lambda m, x, axis=axis: m.roll(x, 5, axis), [f32(61, 127, 131)])
    yield Case("split, axis 1", lambda m, x: sum(a * k for k, a in enumerate(m.split(x, 3, 1))), [f32(1021, 1032)],
               lambda torch, x: sum(a * k for k, a in enumerate(torch.chunk(x, 3, 1))))
    yield Case("pad", lambda tn, x: tn.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), [f32(16, 31, 57, 57)],
               lambda torch, x: torch.nn.functional.pad(x, (1, 1, 1, 1)))
    yield Case("pad, reflected", lambda tn, x: tn.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], mode="reflect"),
               [f32(16, 31, 57, 57)], lambda torch, x: torch.nn.functional.pad(x, (2, 2, 2, 2), mode="reflect"))
    yield Case("x[:, ::2] * 2", lambda m, x: x[:, ::2] * 2, [f32(1021, 2063)])
    yield Case("x[::2] * 2", lambda m, x: x[::2] * 2, [f32(2063, 1021)])
    yield Case("x[1:] - x[:-1]", lambda m, x: x[:, 1:] - x[:, :-1], [f32(1021, 1031)])
    yield Case("tril", lambda m, x: m.tril(x), [f32(1021, 1021)])
    yield Case("tile", lambda m, x: m.tile(x, (3, 5)), [f32(211, 331)])
    yield Case("repeat_interleave", lambda m, x: m.repeat_interleave(x, 3, 1), [f32(511, 733)])
    yield Case("pixel_shuffle", lambda tn, x: tn.pixel_shuffle(x, 2), [f32(8, 64, 37, 37)],
               lambda torch, x: torch.pixel_shuffle(x, 2))


def indexing() -> Iterator[Case]:
    """Elements and rows that indices choose."""
    for kind in (f32, bf16):
        yield Case("embedding", lambda tn, w, at: tn.embedding(at, w),
                   [kind(10007, 257), i64(64, 67, most=10007)],
                   lambda torch, w, at: torch.nn.functional.embedding(at, w))
    yield Case("embedding's gradient", lambda tn, g, at: tn.index_add(tn.zeros((10007, 257)), at, g),
               [f32(4288, 257), i64(4288, most=10007)],
               lambda torch, g, at: torch.zeros(10007, 257).index_add(0, at, g))
    yield Case("take, axis 1", lambda tn, x, at: tn.take(x, at, 1), [f32(1021, 1031), i64(509, most=1031)],
               lambda torch, x, at: x.index_select(1, at))
    yield Case("take, elements", lambda tn, x, at: tn.take(x, at, 0), [f32(1_000_003), i64(1_000_003, most=1_000_003)],
               lambda torch, x, at: x.index_select(0, at))
    yield Case("x[at]", lambda m, x, at: x[at], [f32(10007, 67), i64(20011, most=10007)])
    yield Case("x[i, j]", lambda m, x, i, j: x[i, j],
               [f32(1021, 1031), i64(500_009, most=1021), i64(500_009, most=1031)])
    for axis in (0, 1):
        yield Case(f"gather, axis {axis}", lambda tn, x, at, axis=axis: tn.take_along_axis(x, at, axis),
                   [f32(1021, 1031), i64(1021, 1031, most=1021)],
                   lambda torch, x, at, axis=axis: torch.gather(x, axis, at))
        yield Case(f"scatter_add, axis {axis}", lambda tn, x, at, u, axis=axis: tn.scatter_add(x, at, u, axis),
                   [f32(1021, 1031), i64(1021, 1031, most=1021), f32(1021, 1031)],
                   lambda torch, x, at, u, axis=axis: x.scatter_add(axis, at, u))
        yield Case(f"index_add, axis {axis}", lambda tn, x, at, u, axis=axis: tn.index_add(x, at, u, axis),
                   [f32(1021, 1021), i64(1021, most=1021), f32(1021, 1021)],
                   lambda torch, x, at, u, axis=axis: x.index_add(axis, at, u))
    yield Case("one_hot", lambda tn, at: tn.one_hot(at, 257), [i64(4099, most=257)],
               lambda torch, at: torch.nn.functional.one_hot(at, 257))
    yield Case("bincount", lambda tn, at: tn.bincount(at, length=1000), [i64(1_000_003, most=1000)],
               lambda torch, at: torch.bincount(at, minlength=1000))
    yield Case("masked_select", lambda m, x, c: m.masked_select(x, c), [f32(1_000_003), mask(1_000_003)])
    yield Case("nonzero", lambda tn, x: tn.argwhere(x), [mask(1_000_003)], lambda torch, x: torch.nonzero(x))


def orders() -> Iterator[Case]:
    """Sorting and searching along each axis."""
    for kind in (f32, f64, i64):
        for axis in (0, 1):
            yield Case(f"sort, axis {axis}", lambda tn, x, axis=axis: tn.sort(x, axis=axis), [kind(1021, 257)],
                       lambda torch, x, axis=axis: torch.sort(x, axis)[0])
    yield Case("sort", lambda tn, x: tn.sort(x), [f32(1_000_003)], lambda torch, x: torch.sort(x)[0])
    yield Case("sort, short rows", lambda tn, x: tn.sort(x, axis=1), [f32(20011, 31)],
               lambda torch, x: torch.sort(x)[0])
    for axis in (0, 1):
        yield Case(f"argsort, axis {axis}", lambda tn, x, axis=axis: tn.argsort(x, axis=axis), [f32(1021, 257)],
                   lambda torch, x, axis=axis: torch.argsort(x, axis))
        yield Case(f"topk 5, axis {axis}", lambda tn, x, axis=axis: tn.topk(x, 5, axis)[0], [f32(1021, 1031)],
                   lambda torch, x, axis=axis: torch.topk(x, 5, axis)[0])
    for rows in (1, 8, 67):
        yield Case("topk 50", lambda tn, x: tn.topk(x, 50)[0], [f32(rows, 30_000)],
                   lambda torch, x: torch.topk(x, 50)[0])
    yield Case("topk 50", lambda tn, x: tn.topk(x, 50)[0], [i32(67, 30_000, most=1_000_000)],
               lambda torch, x: torch.topk(x, 50)[0])
    yield Case("topk 100", lambda tn, x: tn.topk(x, 100)[0], [f32(17, 30011)], lambda torch, x: torch.topk(x, 100)[0])
    yield Case("median", lambda tn, x: tn.quantile(x, 0.5, 1), [f32(257, 1021)],
               lambda torch, x: torch.quantile(x, 0.5, 1))
    yield Case("searchsorted", lambda tn, x, v: tn.searchsorted(tn.cumsum(x * x, 0), v), [f32(1009), f32(1_000_003)],
               lambda torch, x, v: torch.searchsorted(torch.cumsum(x * x, 0), v))
    yield Case("unique", lambda tn, x: tn.unique_values(x), [i64(100_003, most=1000)],
               lambda torch, x: torch.unique(x))


def products() -> Iterator[Case]:
    """Matrices skinny, prime, transposed, batched; einsum; of several types."""
    shapes = ((509, 509, 509), (1021, 1021, 1021), (1021, 7, 1031), (7, 1021, 1031), (1021, 1031, 7), (1, 2053, 2053),
              (2053, 2053, 1), (2053, 1, 2053), (31, 3001, 31), (127, 769, 3073))
    for kind in (f32, f64, bf16):
        for m, k, n in shapes:
            yield Case("x @ y", lambda _, x, y: x @ y, [kind(m, k), kind(k, n)])
    for m, k, n in ((509, 509, 509), (127, 769, 513), (7, 1021, 1031)):
        yield Case("x.T @ y", lambda _, x, y: x.T @ y, [f32(k, m), f32(k, n)])
        yield Case("x @ y.T", lambda _, x, y: x @ y.T, [f32(m, k), f32(n, k)])
        yield Case("x @ y", lambda _, x, y: x @ y, [f32(m, k), f32(k, n)], gradient=True)
    for b, m, k, n in ((1000, 7, 7, 7), (1000, 3, 3, 3), (128, 31, 37, 41), (61, 127, 63, 127), (500, 1, 64, 127)):
        yield Case("batched x @ y", lambda _, x, y: x @ y, [f32(b, m, k), f32(b, k, n)])
    yield Case("batched x @ y", lambda _, x, y: x @ y, [f64(61, 127, 63, ), f64(61, 63, 127)])
    yield Case("batched x @ y, one y", lambda _, x, y: x @ y, [f32(61, 127, 63), f32(63, 127)])
    for text, shapes_ in (("ij,kj->ik", ((509, 769), (511, 769))), ("bij,bkj->bik", ((61, 127, 63), (61, 127, 63))),
                          ("ijk,lk->ijl", ((61, 31, 127), (131, 127))), ("bhqd,bhkd->bhqk", ((4, 7, 127, 63),) * 2),
                          ("ij,ij->i", ((1021, 1031),) * 2), ("ij,j->i", ((1021, 1031), (1031,))),
                          ("bij,bj->bi", ((61, 127, 131), (61, 131))), ("ii->i", ((1021, 1021),)),
                          ("ijk->kji", ((61, 127, 131),)), ("i,j->ij", ((1021,), (1031,)))):
        yield Case(f"einsum {text}", lambda m, *xs, text=text: m.einsum(text, *xs), [f32(*s) for s in shapes_],
                   lambda torch, *xs, text=text: torch.einsum(text, *xs).contiguous())
    yield Case("linear", lambda tn, x, w, b: tn.linear(x, w, b), [f32(127, 769), f32(3073, 769), f32(3073)],
               lambda torch, x, w, b: torch.nn.functional.linear(x, w, b), gradient=True)


def constant_factors() -> Iterator[Case]:
    """One operator with a weight, as it is in a network in use: nothing around it pays for another layout."""
    for n, channels, filters, size, kernel, stride in (
            (1, 96, 1, 56, 3, 1), (8, 96, 1, 56, 3, 1), (1, 144, 1, 56, 3, 2), (1, 192, 1, 28, 5, 1),
            (1, 3, 64, 224, 7, 2), (1, 64, 64, 56, 3, 1), (1, 64, 256, 56, 1, 1), (1, 256, 64, 56, 1, 1),
            (1, 512, 512, 7, 3, 1), (1, 2048, 512, 7, 1, 1), (8, 64, 16, 28, 3, 1)):
        groups = channels if filters == 1 else 1        # one filter for each channel
        yield Case("depthwise conv" if groups > 1 else "conv",
                   lambda tn, x, w, a=(stride, kernel // 2, 1, groups): tn.conv2d(x, w, None, *a),
                   [f32(n, channels, size, size), f32(filters * groups, channels // groups, kernel, kernel)],
                   lambda torch, x, w, a=(stride, kernel // 2, 1, groups):
                   torch.nn.functional.conv2d(x, w, None, *a), constants=1)
    for kind in (f32, f64):
        for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (16, 1021, 1031)):
            yield Case("x @ w", lambda _, x, w: x @ w, [kind(m, k), kind(k, n)], constants=1)


def windows() -> Iterator[Case]:
    """Pooling and resampling of pictures."""
    picture = f32(8, 31, 57, 57)
    for gradient in (False, True):
        for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)):
            yield Case(f"max_pool {kernel}/{stride}", lambda tn, x, a=(kernel, stride, padding): tn.max_pool(x, *a),
                       [picture], lambda torch, x, a=(kernel, stride, padding):
                       torch.nn.functional.max_pool2d(x, *a), gradient=gradient)
            yield Case(f"avg_pool {kernel}/{stride}", lambda tn, x, a=(kernel, stride, padding): tn.avg_pool(x, *a),
                       [picture], lambda torch, x, a=(kernel, stride, padding):
                       torch.nn.functional.avg_pool2d(x, *a), gradient=gradient)
        yield Case("max_pool1d 3/2", lambda tn, x: tn.max_pool1d(x, 3, 2), [f32(16, 67, 1021)],
                   lambda torch, x: torch.nn.functional.max_pool1d(x, 3, 2), gradient=gradient)
        yield Case("avg_pool3d 2/2", lambda tn, x: tn.avg_pool3d(x, 2), [f32(4, 7, 31, 33, 37)],
                   lambda torch, x: torch.nn.functional.avg_pool3d(x, 2), gradient=gradient)
        yield Case("max_pool3d 2/2", lambda tn, x: tn.max_pool3d(x, 2), [f32(4, 7, 31, 33, 37)],
                   lambda torch, x: torch.nn.functional.max_pool3d(x, 2), gradient=gradient)
        yield Case("adaptive_avg_pool 7", lambda tn, x: tn.adaptive_avg_pool2d(x, 7), [picture],
                   lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 7), gradient=gradient)
        yield Case("adaptive_avg_pool 1", lambda tn, x: tn.adaptive_avg_pool2d(x, 1), [picture],
                   lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 1), gradient=gradient)
        yield Case("adaptive_max_pool 7", lambda tn, x: tn.adaptive_max_pool2d(x, 7), [picture],
                   lambda torch, x: torch.nn.functional.adaptive_max_pool2d(x, 7), gradient=gradient)
        for mode in ("nearest", "bilinear", "bicubic"):
            yield Case(f"interpolate {mode} x 2", lambda tn, x, mode=mode: tn.interpolate(x, scale_factor=2, mode=mode),
                       [f32(8, 31, 37, 37)], lambda torch, x, mode=mode:
                       torch.nn.functional.interpolate(x, scale_factor=2, mode=mode), gradient=gradient)
    yield Case("interpolate bilinear to 31", lambda tn, x: tn.interpolate(x, size=(31, 31), mode="bilinear"), [picture],
               lambda torch, x: torch.nn.functional.interpolate(x, size=(31, 31), mode="bilinear"))
    yield Case("unfold", lambda tn, x: tn.unfold(x, 3, padding=1), [f32(8, 15, 31, 31)],
               lambda torch, x: torch.nn.functional.unfold(x, 3, padding=1))


def chances() -> Iterator[Case]:
    """Random numbers; PyTorch's from its generator, as Tenon's."""
    for name, tenon, torch in (
            ("uniform", lambda tn: tn.rand(1_000_003), lambda torch: torch.rand(1_000_003)),
            ("normal", lambda tn: tn.randn(1_000_003), lambda torch: torch.randn(1_000_003)),
            ("randint", lambda tn: tn.randint(0, 1000, (1_000_003,)),
             lambda torch: torch.randint(0, 1000, (1_000_003,))),
            ("permutation", lambda tn: tn.randperm(100_003), lambda torch: torch.randperm(100_003)),
            ("bernoulli", lambda tn: tn.rand(1_000_003) < 0.3, lambda torch: torch.rand(1_000_003) < 0.3)):
        yield Case(name, tenon, [], torch, random=True)
    yield Case("dropout", lambda tn, x: tn.dropout(x, 0.1), [f32(1021, 1031)],
               lambda torch, x: torch.nn.functional.dropout(x, 0.1), random=True, gradient=True)


def learning() -> Iterator[Case]:
    """Losses, attention."""
    for rows, classes in ((4099, 10), (127, 30011), (1021, 1031)):
        yield Case("cross_entropy", lambda tn, x, at: tn.cross_entropy(x, at),
                   [f32(rows, classes), i64(rows, most=classes)],
                   lambda torch, x, at: torch.nn.functional.cross_entropy(x, at), gradient=True)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"):
        yield Case(name, lambda tn, x, y, name=name: getattr(tn, name)(x, tn.sigmoid(y)), [f32(1021, 1031)] * 2,
                   lambda torch, x, y, name=name: getattr(torch.nn.functional, name)(x, torch.sigmoid(y)),
                   gradient=True)
    for heads, length, width in ((12, 127, 32), (7, 257, 64), (6, 509, 80), (4, 131, 128), (12, 1, 64)):
        for causal in (False, True):
            for gradient in (False, True):
                yield Case(f"attention{', causal' if causal else ''}", lambda tn, q, k, v, causal=causal:
                           tn.scaled_dot_product_attention(q, k, v, is_causal=causal),
                           [f32(2, heads, length, width)] * 3,
                           lambda torch, q, k, v, causal=causal: torch.nn.functional.scaled_dot_product_attention(
                               q, k, v, is_causal=causal), gradient=gradient)


def cases() -> list[Case]:
    """All of them."""
    families = (elementwise, conversions, reductions, norms, moves, indexing, orders, products,
                constant_factors, windows, chances, learning)
    return [case for family in families for case in family()]
