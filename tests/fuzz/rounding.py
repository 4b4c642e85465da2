"""A graph and arrays -> what its results may be: the value in float64, and how far roundings move each element.

The graph is interpreted in float64, where every value of a node is moved by a random part of half a unit of the last
place of the type it should have.  Values that the type holds exactly are not moved: what only chooses, moves or adds
whole numbers must be exact, ties included.  How far several tries part says how well conditioned each element is:
chaos is not called wrong, and an error that no rounding explains is not forgiven.  Elements that are decided by a
rounding (a comparison of neighbours, an overflow) are found by the same tries, and are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon.graph import interpret as reference
from tenon.graph.build import expansion
from tenon.graph.ir import Graph
from tenon.graph.op import Op
from tenon.graph.text import parse_graph, print_graph
from tenon.types import DType, TensorType, as_dtype, bool_, complex128, float64

TIMES = 32.0        # roundings of one node's inside: sums in another order, formulas of another form
AGAIN = 0.125       # of the uses of a value, how many read what was computed again
LOUD = 8.0          # how much louder the tries are that look for elements which a rounding decides
UNIT = {"f16": 2.0 ** -11, "bf16": 2.0 ** -8, "f32": 2.0 ** -24, "c64": 2.0 ** -24}
LEAST = {"f16": 2.0 ** -25, "bf16": 2.0 ** -127, "f32": 2.0 ** -127, "c64": 2.0 ** -127}
LARGEST = {"f16": 65504.0, "bf16": 3.3895e38, "f32": 3.4028e38, "c64": 3.4028e38}
NEAR = 0.25         # of the largest number
# A product that is added may be added unrounded, so each use of it in a sum is rounded for itself.  What is computed
# again for another use may be rounded differently too, and all that it is made of, but not where it is compared or
# chosen: where what is left of a cancellation is read twice, the two need not cancel again.
SUMS = ("add", "subtract", "sum")
DECIDING = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where", "maximum", "minimum", "fmax",
            "fmin", "max", "min", "argmax", "argmin", "sort", "argsort", "clip", "sign", "floor", "ceil", "trunc", "round",
            "cummax", "cummin", "searchsorted", "first_places", "max_pool_op", "max_pool_taps", "max_pool_positions")
# Promised to be right to so many units of the last place of this number, where the value is smaller.
ABSOLUTE = {"normal_cdf": 0.5, "digamma": 1.0, "lgamma": 1.0}
# Right to so many units of the last place of a matrix's largest element, as elimination is (Higham 2002).
NORMWISE = ("inv", "pinv", "solve", "solve_triangular", "cholesky", "matrix_exp")
# Right for a matrix that is off by so many units of the last place of its largest element: whether a determinant is 0 is
# decided by roundings (the same, theorem 9.3).
OF_A_NEAR_MATRIX = ("det", "slogdet", "small_det", "small_slogdet")
# Whose second operand meets padding: what is infinite there is multiplied by zero, or left out (docs/correctness.md).
PADDED = ("conv", "depthwise")
# What may be nothing but the roundings of numbers near 1, in halves: whether it is 0 is decided by them.
NOTHING_BUT_ROUNDINGS = 2.0 ** -6
WIDTHS = {2: np.float16, 4: np.float32, 8: np.float64}      # in bytes, of numbers whose bits are looked at
OF_F64, MIN_OF_F64 = 2.0 ** -53, 1e-300


@dataclass(frozen=True)
class Expected:
    """What one result may be: `value` where it is `decided`, off by `allowed`; or no finite number where it `overflows`:
    where a part may in another order ((a + b) + c where b + c is too large), or a divisor may be rounded to 0."""

    value: np.ndarray
    allowed: np.ndarray
    decided: np.ndarray
    overflows: Any = np.False_


@dataclass(frozen=True)
class Noise:
    """How loud roundings are, whether uses are rounded apart, equal elements alike, and a composite operator's unit."""

    rng: np.random.Generator
    loudness: float
    apart: bool
    keeps_ties: bool
    unit: float = 0.0
    twins: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def twin(self, x: Any) -> Any:
        """The value as it is when it, and all that it is made of, is computed again."""
        return self.twins[id(x)][1] if id(x) in self.twins else x

    def of_either(self, arrays: Sequence[Any]) -> list[Any]:
        """Values as they are, but for a few that were computed again."""
        return [self.twin(x) if self.rng.random() < AGAIN else x for x in arrays]

    def remember(self, values: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> None:
        """Values, and what they are when they are computed again; both are kept, so no other has their identity."""
        self.twins.update({id(x): (x, y) for x, y in zip(values, again, strict=True) if x.shape == y.shape})


_noise: ContextVar[Noise | None] = ContextVar("noise", default=None)


def expected(graph: Graph, arrays: Sequence[np.ndarray], native: Sequence[np.ndarray], tries: int = 4,
             apart: bool = False) -> list[Expected]:
    """What the results may be; `native` are those of the reference.  `apart` moves the arrays too, exact
    or not, and each use of a value for itself."""
    values = wide_run(graph, arrays, 0, 0.0, apart)
    quiet = [wide_run(graph, arrays, seed, 1.0, apart) for seed in range(1, tries + 1)]
    loud = [wide_run(graph, arrays, seed, LOUD, apart) for seed in range(101, 101 + max(tries // 2, 2))]
    return [judged(value, own, near, far, x.dtype) for value, own, near, far, x in
            zip(values, native, zip(*quiet, strict=True), zip(*loud, strict=True), graph.results, strict=True)]


def judged(value: np.ndarray, native: np.ndarray, near: Sequence[np.ndarray], far: Sequence[np.ndarray],
           dtype: DType) -> Expected:
    """One result: the spread of the tries, and whether a rounding decides it, or its shape."""
    if any(np.shape(x) != np.shape(native) for x in (value, *near, *far)):
        return Expected(native, np.zeros(np.shape(native)), np.zeros(np.shape(native), bool))
    if dtype.kind in "biu":
        same = np.logical_and.reduce([np.equal(value, x) for x in (native, *near, *far)])
        return Expected(value, np.zeros(np.shape(value)), same)
    others = [np.asarray(native, value.dtype), *near, *far]
    finite = np.isfinite(value)
    same = np.logical_and.reduce([np.where(finite, np.isfinite(x), (x == value) | (np.isnan(x) & np.isnan(value)))
                                  for x in others])
    with np.errstate(all="ignore"):
        spread, loud = (np.max([np.abs(x - value) for x in xs], axis=0, initial=0) for xs in (others[:1 + len(near)], far))
        size = np.abs(value)
        unit, least = UNIT.get(dtype.short, OF_F64), LEAST.get(dtype.short, MIN_OF_F64)
        allowed = TIMES * (spread + unit * np.where(finite, size, 0) + least)
        jumps = loud > LOUD * 32 * (spread + unit * size + least)
        too_large = np.max(np.where(finite, size, 0), initial=0) > NEAR * LARGEST.get(dtype.short, np.inf)
        overflows = too_large | ((spread > size) & (size * unit > 1))
    return Expected(value, allowed, same & ~(jumps & finite), overflows)


def wide_run(graph: Graph, arrays: Sequence[np.ndarray], seed: int, loudness: float, apart: bool) -> list[np.ndarray]:
    """The results in float64, with roundings of this loudness."""
    noise = Noise(np.random.default_rng(seed), loudness, apart, keeps_ties=seed % 2 == 1)
    given = [move(widened(a), as_dtype(a.dtype), noise, not apart) for a in arrays]
    with wide(noise), np.errstate(all="ignore"):
        return reference.interpret(graph, given)


@contextmanager
def wide(noise: Noise) -> Iterator[None]:
    """Let the reference interpreter evaluate every operator in float64, sub-graphs of control flow included."""
    token, before = _noise.set(noise), reference.evaluate_op
    reference.evaluate_op = evaluate_wide
    try:
        yield
    finally:
        reference.evaluate_op = before
        _noise.reset(token)


exact_op = reference.evaluate_op


def evaluate_wide(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
                  types: Sequence[TensorType] | None = None, kernel: Any = None) -> tuple[Any, ...]:
    """The outputs of one operator in float64, each moved as rounding to its type might."""
    noise = _noise.get()
    assert noise is not None
    if types is None:       # results whose sizes the data decide: elements that are chosen, or where they stand
        return tuple(map(widened, exact_op(op, [None if a is None else widened(a) for a in arrays], attrs, types, kernel)))
    if not any(a is not None and np.asarray(a).dtype.kind in "fcV" for a in arrays) and op.name != "pop":
        return tuple(map(widened, exact_op(op, arrays, attrs, types, kernel)))      # constants, random numbers, integers
    if not noise.apart or op.name in DECIDING:
        return _moved(op, arrays, attrs, types, kernel, noise)
    found = _moved(op, noise.of_either(arrays), attrs, types, kernel, noise)
    again = _moved(op, list(map(noise.twin, arrays)), attrs, types, kernel, noise)
    noise.remember(found, again)
    return found


def _moved(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any], types: Sequence[TensorType], kernel: Any,
           noise: Noise) -> tuple[Any, ...]:
    """The outputs of one operator, moved for once."""
    if op.name in SUMS or (noise.apart and op.name not in DECIDING):
        arrays = [None if a is None else move(np.asarray(a), types[0].dtype, noise) for a in arrays]
    if op.name in OF_A_NEAR_MATRIX:
        arrays = [move(np.asarray(a), types[0].dtype, noise, exactly=False, least=largest(np.asarray(a))) for a in arrays]
    if op.name == "cast" and types[0].dtype is bool_:
        arrays = [perhaps_zero(np.asarray(arrays[0]), noise)]
    if op.name == "same_bits" and np.asarray(arrays[0]).dtype.kind == "f":
        arrays = [np.asarray(arrays[0]).astype(WIDTHS[types[0].dtype.itemsize])]
        return exact_op(op, arrays, attrs, types, kernel)
    if op.name.startswith(PADDED) and noise.keeps_ties and not np.isfinite(arrays[1]).all():
        return tuple(np.full(t.shape, np.nan) for t in types)       # in every other try, so nothing of it is decided
    given, wide_attrs = [widened(a) for a in arrays], {name: wide_attribute(x) for name, x in attrs.items()}
    if op.ref is not None and (op.expand is None or any(isinstance(x, Graph) for x in attrs.values())):
        found: Any = exact_op(op, given, wide_attrs, [wide_type(t) for t in types], kernel)
        if op.name in OF_A_NEAR_MATRIX:
            found = perhaps_singular(found, given[0], unit_of(types[0].dtype), noise)
        return tuple(move(np.asarray(x), t.dtype, noise, least=least_of(op, np.asarray(x)), times=added(op, given, attrs))
                     for x, t in zip(found, types, strict=True))
    wide_attrs = {name: wide_graph(x) if isinstance(x, Graph) else x for name, x in wide_attrs.items()}
    token = _noise.set(Noise(noise.rng, noise.loudness, noise.apart, noise.keeps_ties,
                             max(noise.unit, *(unit_of(t.dtype) for t in types)),
                             noise.twins))
    try:
        body = expansion(op, tuple(map(reference.type_of, given)), wide_attrs)
        return tuple(reference.interpret_within(body, [a for a in given if a is not None]))
    finally:
        _noise.reset(token)


def least_of(op: Op, x: np.ndarray) -> Any:
    """What smaller elements of a result are as exact as."""
    return largest(x) if op.name in NORMWISE and x.ndim >= 2 else ABSOLUTE.get(op.name, 0.0)


def perhaps_zero(x: np.ndarray, noise: Noise) -> np.ndarray:
    """Numbers whose truth is asked: in every other try, those are 0 that may be nothing but roundings."""
    zero = (np.abs(x) < NOTHING_BUT_ROUNDINGS) & (noise.rng.random(x.shape) < 0.5) & (noise.loudness > 0)
    return np.where(zero, 0, x)


def perhaps_singular(found: Sequence[np.ndarray], x: np.ndarray, unit: float, noise: Noise) -> Sequence[np.ndarray]:
    """A determinant, or its sign and logarithm, that of every other matrix as if it were singular, if it may be:
    roundings are as large as the determinant, beside the largest that rows of these lengths can have (Hadamard)."""
    most = np.prod(np.sqrt((np.abs(x) ** 2).sum(axis=-1)), axis=-1)
    size = np.abs(found[0]) if len(found) == 1 else np.exp(found[1])
    zero = (size <= TIMES * unit * most) & (noise.rng.random(size.shape) < 0.5) & (noise.loudness > 0)
    return [np.where(zero, value, part) for part, value in zip(found, (0.0, -np.inf), strict=False)]


def largest(x: np.ndarray) -> Any:
    """The largest finite magnitude of each matrix."""
    return np.abs(x).max(axis=(-2, -1), keepdims=True, where=np.isfinite(x), initial=0.0)


def added(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> float:
    """Roundings of numbers that are added to one place in turn, as many as numbers (Higham 2002), beyond `TIMES`."""
    if op.name != "put" or attrs["reduce"] != "add" or not arrays[1].size:
        return 1.0
    return max(1.0, np.unique(arrays[1], return_counts=True)[1].max() / TIMES)


def move(x: np.ndarray, dtype: DType, noise: Noise, exactly: bool = True, least: Any = 0.0,
         times: float = 1.0) -> np.ndarray:
    """`x` off by a random part of so many halves of a unit of the last place, where the type does not hold it exactly.

    Numbers smaller than `least` are moved as if they were as large.  What is no number has any sign (IEEE 754, 6.3).
    """
    if dtype.kind not in "fc" or as_dtype(x.dtype).kind not in "fc" or not noise.loudness:
        return x
    unit, small = max(unit_of(dtype), noise.unit) * noise.loudness * times, least if np.ndim(least) == 0 else 0.0
    least = np.maximum(LEAST.get(dtype.short, MIN_OF_F64), least * unit)
    with np.errstate(all="ignore"):
        off = _steps(x, unit, noise) if noise.apart else x * unit * _random(x, noise)
        off = off + least * _random(x, noise)
        rounds = widened(x.astype(dtype.numpy)) != x if exactly and dtype is not float64 else np.isfinite(x)
        if exactly and dtype in (float64, complex128):
            rounds = rounds & (x != np.round(x))
        rounds = rounds | (np.abs(x) < small)       # that the type holds one of these says nothing
    signed = x if np.iscomplexobj(x) else np.where(np.isnan(x), np.copysign(x, noise.rng.uniform(-1, 1, x.shape)), x)
    return np.where(rounds & np.isfinite(x), x + np.where(np.isfinite(off), off, 0), signed)


def _steps(x: np.ndarray, unit: float, noise: Noise) -> Any:
    """A rounding up, down or none: in steps of a power of two, so what is nothing but roundings ties, as it does."""
    _, power = np.frexp(np.abs(x))
    return np.ldexp(unit, power - 1) * np.floor(1.5 * _random(x, noise) + 0.5)


def _random(x: np.ndarray, noise: Noise) -> Any:
    """Numbers from -1 to 1; where ties stay, the same for equal elements, as roundings are (Steele et al. 2014)."""
    if not noise.keeps_ties:
        return noise.rng.uniform(-1, 1, x.shape)
    parts = (x.real, x.imag) if np.iscomplexobj(x) else (x,)
    found = np.full(x.shape, noise.rng.integers(1 << 63), np.uint64)
    for part in parts:
        found ^= (np.array(part, np.float64).view(np.uint64) + np.uint64(1 << 15)) >> np.uint64(16)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found / 2.0 ** 63 - 1


def unit_of(dtype: DType) -> float:
    """Half a unit of the last place, relative; 0 for what is not rounded."""
    return UNIT.get(dtype.short, OF_F64) if dtype.kind in "fc" else 0.0


def wide_dtype(dtype: DType) -> DType:
    return {"f": float64, "c": complex128}.get(dtype.kind, dtype)


def wide_type(type: TensorType) -> TensorType:
    return type.with_dtype(wide_dtype(type.dtype))


def wide_graph(graph: Graph) -> Graph:
    """The graph with float64 in the place of all types of fractions."""
    return parse_graph(re.sub(r"\b(f16|bf16|f32)\b", "f64", print_graph(graph, locations=False)))


def wide_attribute(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(wide_attribute, x))
    return wide_dtype(x) if isinstance(x, DType) else x


def widened(array: Any) -> Any:
    """The array in float64 or complex128 if it has fractions."""
    if array is None:
        return None
    array = np.asarray(array)
    kind = as_dtype(array.dtype).kind
    return array.astype(np.float64) if kind == "f" else array.astype(np.complex128) if kind == "c" else array
