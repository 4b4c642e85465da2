"""Random numbers as functions of a state: the counter-based generator Philox4x32-10, and what is drawn from it.

A state is u64[2]: a seed and the number of draws so far.  Word n of a draw is word n % 4 of

    philox(counter=(n // 4, stream, draw), key=seed)

so every element knows its own number: the same bits eagerly, compiled, on any number of threads.  `tenon.random` keeps
the state for users.  J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.axis_rule import rows
from tenon.graph.op import Op
from tenon.ops.bit_exact_math import DOUBLE, FORMS, SINGLE, Form, OnExpressions, logarithm, of_array, upper_quantile
from tenon.ops.comparison import where
from tenon.ops.creation import arange_op
from tenon.ops.define import composite, define
from tenon.ops.prefetch_draws import ahead
from tenon.ops.shape import as_shape, cast, ravel, size_expression
from tenon.types import (
    DType,
    Shape,
    TensorType,
    Unsigned,
    as_dtype,
    bfloat16,
    float16,
    float32,
    float64,
    int64,
    real_of,
    uint32,
    uint64,
)

MASK = 0xFFFFFFFF
FRACTION_BITS = {float64: 53, float32: 24, float16: 11, bfloat16: 8}    # uniform numbers are multiples of 2 ** -bits
MAX_PYTHON_WORDS = 16                                                   # words that Python makes as fast as NumPy
MIN_NUMPY_ORDERS = 32                                                   # orders that NumPy deals together sooner
MAX_PREFETCHED_WORDS = 128                                              # words of a draw whose sequels are made along
CHUNK = 1 << 13                                                         # blocks of four words that NumPy holds in cache
ROUNDS, FACTORS, KEY_STEPS = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)      # of Philox


@lru_cache
def _constants() -> tuple[Any, ...]:
    """What `words` needs as arrays: the low half of a word and its width, the factors, what keys grow by in each round.
    """
    steps = np.arange(ROUNDS, dtype=np.uint64)[:, None] * np.array(KEY_STEPS, np.uint64)
    return np.uint64(MASK), np.uint64(32), np.array(FACTORS, np.uint64)[:, None], steps


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Four random words from a counter and a key: 32-bit numbers in 64-bit arrays or expressions."""
    a, b, c, d = counter
    for k in range(ROUNDS):
        p, q = a * FACTORS[0], c * FACTORS[1]
        a, b, c, d = ((q >> 32) ^ b ^ ((key[0] + k * KEY_STEPS[0] % (1 << 32)) & MASK), q & MASK,
                      (p >> 32) ^ d ^ ((key[1] + k * KEY_STEPS[1] % (1 << 32)) & MASK), p & MASK)
    return a, b, c, d


def words(state: Any, count: int, stream: int) -> Any:
    """NumPy: the first `count` words of a draw, u32[count]; both products of a round are one array."""
    if count <= MAX_PYTHON_WORDS:
        seed, draw = map(int, state)
        blocks = [philox((block, stream, draw & MASK, draw >> 32), (seed & MASK, seed >> 32))
                  for block in range(-(-count // 4))]
        return np.array(blocks, np.uint32).reshape(-1)[:count]
    seed, draw = np.asarray(state, np.uint64)
    out = np.empty((-(-count // 4), 4), np.uint32)
    for start in range(0, len(out), CHUNK):
        part = out[start:start + CHUNK]
        _fill(part, seed, np.arange(start, start + len(part)), draw, stream)
    return out.reshape(-1)[:count]


def _fill(out: Any, seed: Any, blocks: Any, draws: Any, stream: int) -> None:
    """Write the four words of each block of a draw."""
    low, half, factors, steps = _constants()
    keys = (np.array([seed & low, seed >> half]) + steps) & low
    even, odd = np.empty((2, 2, len(out)), np.uint64)       # (a, c) and (b, d) of `philox`
    even[0], even[1] = blocks, draws & low
    odd[0], odd[1] = stream, draws >> half
    for key in keys:
        products = (even * factors)[::-1]
        even = (products >> half) ^ odd ^ key[:, None]
        odd = products & low
    out[:, 0::2], out[:, 1::2] = even.T, odd.T


def _words_of_draws(seed: int, first: int, draws: int, count: int, stream: int) -> Any:
    """NumPy: the first `count` words of each of some draws in a row, u32[draws, count]."""
    if draws == 1:
        return words((seed, first), count, stream)[None]
    each = -(-count // 4)
    out = np.empty((draws * each, 4), np.uint32)
    numbers = np.arange(draws, dtype=np.uint64) + np.uint64(first)
    _fill(out, np.uint64(seed), np.tile(np.arange(each), draws), np.repeat(numbers, each), stream)
    return out.reshape(draws, -1)[:, :count]


Maker = tuple[int, Callable[[Any], Any]]        # words an element is made of, and what makes elements of words


def _ref(name: str, maker: Callable[..., Maker]) -> Callable[..., Any]:
    """NumPy: the reference of a draw; what is made of its words depends on the attributes that `maker` takes."""
    def ref(state: Any, shape: Any, stream: int, **attrs: Any) -> Any:
        each, make = maker(**attrs)
        count = math.prod(shape) * each
        if not 0 < count <= MAX_PREFETCHED_WORDS:
            return make(words(state, count, stream)).reshape(shape)
        return ahead((name, *attrs.values(), shape, stream), state, rows_of_draws(shape, stream, each, make))
    return ref


def rows_of_draws(shape: Any, stream: int, each: int, make: Callable[[Any], Any]) -> Callable[[int, int, int], Any]:
    """NumPy: what makes some draws in a row, [draws, *shape]."""
    count = math.prod(shape) * each
    return lambda seed, first, draws: make(
        _words_of_draws(seed, first, draws, count, stream).reshape(-1)).reshape(draws, *shape)


def _element_words(s: Any, i: Any, state: Any, shape: Any, stream: int, each: int) -> tuple[Any, ...]:
    """The `each` (1 or 2) words that belong to the element at index `i`, as u64 expressions."""
    number = s.cast(ravel(i, shape), uint64) if i else s.const(0, uint64)
    seed, draw = state((s.const(0, int64),)), state((s.const(1, int64),))
    block, place = (number >> 2, number & 3) if each == 1 else (number >> 1, number & 1)
    found = philox((block & MASK, s.const(stream, uint64), draw & MASK, draw >> 32), (seed & MASK, seed >> 32))
    if each == 2:
        return tuple(s.select(s.eq(place, s.const(0, uint64)), found[k], found[k + 2]) for k in range(2))
    word = found[3]
    for k in (2, 1, 0):
        word = s.select(s.eq(place, s.const(k, uint64)), found[k], word)
    return (word,)


def _drawn(name: str, state: TensorType, dtype: DType, shape: Any, stream: int = 0) -> TensorType:
    if not 0 <= stream <= MASK:
        raise ArgumentError(f"{name}: a stream is a number from 0 to {MASK}, not {stream}")
    if state != TensorType(uint64, (2,)):
        raise ShapeError(f"{name}: the state of a generator is u64[2], not {state}")
    return TensorType(dtype, shape)


# ---------------------------------------------------------------- bits, uniform numbers, integers

def _bits_type(state: TensorType, *, shape: Shape, stream: int = 0) -> TensorType:
    return _drawn("random_bits", state, uint32, shape, stream)


def _draw_work(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return int(outputs[0].size)


random_bits: Op = define(
    "random_bits", public=False, type=_bits_type,
    canonical=lambda state, shape, stream: {"shape": as_shape(shape), "stream": stream},
    ref=_ref("bits", lambda: (1, lambda drawn: drawn)),
    compute=lambda s, i, state, shape, stream: s.cast(_element_words(s, i, state, shape, stream, 1)[0], uint32),
    vjp=lambda g, y, state, **_: (None,),
    exact=True, numpy_work=_draw_work, doc="Random words.  Draws with different `stream` are independent.",
    examples=["random_bits(u64[2], shape=(3, 5), stream=0) -> u32[3, 5]",
              "random_bits(u64[3], shape=(3,), stream=0) -> error"])


def _canonical(state: TensorType, shape: Any, dtype: Any, stream: int) -> Mapping[str, Any]:
    return {"shape": as_shape(shape), "dtype": as_dtype(dtype), "stream": stream}


def _uniform_type(state: TensorType, *, shape: Any, dtype: Any = "float32", stream: int = 0) -> TensorType:
    if dtype not in FRACTION_BITS:
        raise DTypeError(f"random_uniform: elements of type {as_dtype(dtype).name} are not drawn uniformly from [0, 1)")
    return _drawn("random_uniform", state, dtype, shape, stream)


def fractions_of_words(dtype: DType) -> Maker:
    bits = FRACTION_BITS[dtype]

    def make(drawn: Any) -> Any:
        if dtype is float64:
            pair = drawn.astype(np.uint64)
            return ((pair[0::2] << 21) ^ (pair[1::2] >> 11)).astype(np.float64) * 2.0 ** -53
        return (drawn >> (32 - bits)).astype(np.float32) * np.float32(2.0 ** -bits)
    return 2 if dtype is float64 else 1, make


def _uniform_compute(s: Any, i: Any, state: Any, shape: Any, dtype: DType, stream: int) -> Any:
    bits = FRACTION_BITS[dtype]
    if dtype is float64:
        high, low = _element_words(s, i, state, shape, stream, 2)
        return s.cast((high << 21) ^ (low >> 11), float64) * s.const(2.0 ** -53, float64)
    whole = s.cast(_element_words(s, i, state, shape, stream, 1)[0] >> (32 - bits), uint32)
    return s.cast(s.cast(whole, float32) * s.const(2.0 ** -bits, float32), dtype)


random_uniform: Op = define(
    "random_uniform", public=False, type=_uniform_type, ref=_ref("uniform", fractions_of_words),
    compute=_uniform_compute, canonical=_canonical, vjp=lambda g, y, state, **_: (None,),
    exact=True, numpy_work=_draw_work,
    doc="Numbers uniform in [0, 1): all multiples of 2 ** -24 (float32) or 2 ** -53 (float64) are equally likely.",
    examples=["random_uniform(u64[2], shape=(3, 5), dtype=f32, stream=0) -> f32[3, 5]",
              "random_uniform(u64[2], shape=(3,), dtype=f64, stream=1) -> f64[3]",
              "random_uniform(u64[2], shape=(3,), dtype=i64, stream=1) -> error"])


def integers_of_words(low: int, count: int) -> Maker:
    def make(drawn: Any) -> Any:
        pair = drawn.astype(np.uint64)
        return (((pair[0::2] << 32) ^ pair[1::2]) % np.uint64(count)).astype(np.int64) + low
    return 2, make


def _integers_compute(s: Any, i: Any, state: Any, low: int, count: int, shape: Any, stream: int) -> Any:
    high, rest = _element_words(s, i, state, shape, stream, 2)
    return s.cast(((high << 32) ^ rest) % size_expression(s, count, uint64), int64) + low


def _integers_type(state: TensorType, *, low: int, count: Unsigned, shape: Shape, stream: int = 0) -> TensorType:
    if count < 1 or low + count > 1 << 63:
        raise ArgumentError(f"random_integers: there are no {count} integers from {low} on")
    return _drawn("random_integers", state, int64, shape, stream)


random_integers: Op = define(
    "random_integers", public=False, ref=_ref("integers", integers_of_words), compute=_integers_compute,
    type=_integers_type,
    canonical=lambda state, low, count, shape, stream: {"low": low, "count": count, "shape": as_shape(shape),
                                                        "stream": stream},
    vjp=lambda g, y, state, **_: (None,),
    exact=True, numpy_work=_draw_work, doc="Integers from the `count` that start at `low`, all equally likely.",
    examples=["random_integers(u64[2], low=-3, count=10, shape=(3, 5), stream=0) -> i64[3, 5]"])

random_advance: Op = define(
    "random_advance", public=False, type=lambda state: _drawn("random_advance", state, uint64, (2,)),
    ref=lambda state: state + np.array([0, 1], np.uint64), vjp=lambda g, y, state: (None,),
    expand=lambda state: state + arange_op(start=0, step=1, size=2, dtype=uint64),
    doc="The state after one more draw.", examples=["random_advance(u64[2]) -> u64[2]"])


# ---------------------------------------------------------------- other distributions

Transform = Callable[[Any, Any, Form, Any], Any]


def transformed_words(transform: Transform, dtype: DType) -> Maker:
    form = FORMS.get(dtype, SINGLE)

    def make(drawn: Any) -> Any:
        whole = drawn if form is SINGLE else (drawn[0::2].astype(np.uint64) << 32) ^ drawn[1::2]
        return of_array(lambda s, part, form: transform(s, _fraction(s, part, form), form, part & 1), whole, form)
    return 2 if dtype is float64 else 1, make


def _transformed(name: str, transform: Transform, doc: str) -> Op:
    """Numbers that `transform` makes of random fractions in (0, 1); it is also given a bit, 0 or 1, that is drawn."""
    def rule(state: TensorType, *, shape: Any, dtype: Any = "float32", stream: int = 0) -> TensorType:
        if dtype not in FRACTION_BITS:
            raise DTypeError(f"{name}: elements of type {as_dtype(dtype).name} are not drawn")
        return _drawn(name, state, dtype, shape, stream)

    def compute(s: Any, i: Any, state: Any, shape: Any, dtype: DType, stream: int) -> Any:
        form, drawn = FORMS.get(dtype, SINGLE), _element_words(s, i, state, shape, stream, 2 if dtype is float64 else 1)
        whole = s.cast(drawn[0], uint32) if form is SINGLE else (drawn[0] << 32) ^ drawn[1]
        with_bits = OnExpressions(s)
        return s.cast(transform(with_bits, _fraction(with_bits, whole, form), form, whole & 1), dtype)

    return define(name, public=False, type=rule, ref=_ref(name, partial(transformed_words, transform)),
                  compute=compute, exact=True, numpy_work=_draw_work, doc=doc,
                  vjp=lambda g, y, state, **_: (None,), canonical=_canonical,
                  examples=[f"{name}(u64[2], shape=(3, 5), dtype=f32, stream=0) -> f32[3, 5]",
                            f"{name}(u64[2], shape=(3,), dtype=f64, stream=1) -> f64[3]",
                            f"{name}(u64[2], shape=(3,), dtype=i64, stream=1) -> error"])


def _fraction(s: Any, whole: Any, form: Form) -> Any:
    """An odd multiple of 2 ** -32 or 2 ** -53 in (0, 1), as its element type rounds it."""
    if form is DOUBLE:
        return s.product(s.cast((whole >> 11) | 1, float64), 2.0 ** -53)
    below = float(2 ** 32 - 2 ** 8)         # the last number of the type
    return s.product(s.minimum(s.cast(whole | 1, float32), s.const(below, float32)), 2.0 ** -32)


def to_normal(s: Any, p: Any, form: Form, sign: Any) -> Any:
    z = upper_quantile(s, s.product(p, 0.5), form)
    return s.select(s.eq(sign, 0), z, 0.0 - z)


random_normal: Op = _transformed(
    "random_normal", to_normal, "Numbers from the standard normal distribution: its quantiles at random fractions.")

def to_waiting_time(s: Any, p: Any, form: Form, bit: Any) -> Any:
    return 0.0 - logarithm(s, p, form)


random_exponential: Op = _transformed(
    "random_exponential", to_waiting_time,
    "Waiting times between events that come at rate 1; never 0.")


def normal_numbers(state: Any, shape: Any, dtype: DType) -> Any:
    """Numbers from the standard normal distribution; complex ones have variance 1 in all."""
    if dtype.kind != "c":
        return random_normal(state, shape=shape, dtype=dtype)
    parts = (random_normal(state, shape=shape, dtype=real_of(dtype), stream=k) * 0.5 ** 0.5 for k in (0, 1))
    real, imaginary = (cast(x, dtype=dtype) for x in parts)
    return real + imaginary * 1j


# ---------------------------------------------------------------- orders

def dealt_in_order(chances: Any) -> Any:
    """In Python, since what one place does the next one sees."""
    *before, count = chances.shape
    places = np.arange(count)
    chosen = np.minimum(np.where(chances > 0, chances * (places + 1), 0), places).astype(np.int64)
    chosen = chosen.reshape(math.prod(before), count)
    if len(chosen) >= MIN_NUMPY_ORDERS:
        return _dealt_along(chosen).reshape(chances.shape)
    orders = [list(range(count)) for _ in chosen]
    for order, row in zip(orders, chosen.tolist(), strict=True):
        for place, other in enumerate(row):
            order[place] = order[other]
            order[other] = place
    return np.array(orders, np.int64).reshape(chances.shape)


def _dealt_along(chosen: Any) -> Any:
    """The same of many rows, all of them one place after the other."""
    every, orders = np.arange(len(chosen)), np.empty(chosen.shape, np.int64)
    for place, others in enumerate(chosen.T):
        orders[:, place] = orders[every, others] if place else 0
        orders[every, others] = place
    return orders


def _dealt_type(chances: TensorType) -> TensorType:
    if chances.dtype is not float64:
        raise DTypeError(f"dealt: chances are numbers in f64, not {chances}")
    if not chances.ndim:
        raise ShapeError(f"dealt: one number a place, not {chances}")
    return chances.with_dtype(int64)


dealt: Op = define(
    "dealt", public=False, type=_dealt_type, ref=dealt_in_order, fill=lambda s, chances: s.deal(chances),
    axis_rule=lambda chances: rows((chances,), (chances.ndim,), last=1),
    vjp=lambda g, y, chances: (None,),
    batch="front",
    exact=True, numpy_work=lambda inputs, outputs: 100 * int(outputs[0].size),
    doc="0, 1, ... n - 1 along the last axis in the order that numbers from [0, 1) choose: number k comes to place "
        "chances[k] * (k + 1), and what was there to place k (R. Durstenfeld's shuffle, inside out).",
    domain=(0.0, 0.999),
    examples=["dealt(f64[2, 5]) -> i64[2, 5]", "dealt(f64[0]) -> i64[0]", "dealt(f32[5]) -> error",
              "dealt(f64) -> error"])


@composite(public=False, examples=["dropout(f32[3, 5], u64[2], p=0.25) -> f32[3, 5]",
                                   "dropout(f32[3], u64[2], p=1.5) -> error"])
def dropout(x: Any, state: Any, *, p: float) -> Any:
    """x with each element zero with probability p, the rest scaled by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: p={p} is not a probability")
    if p == 1:
        return x * 0
    keep = random_uniform(state, shape=x.shape, dtype=float32) >= p
    return where(keep, x * (1.0 / (1.0 - p)), 0)
