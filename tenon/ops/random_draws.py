"""Kinds of draws as users ask for them, each with what makes few numbers of many draws together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenon.ops.philox_random import (
    MAX_PREFETCHED_WORDS,
    Maker,
    dealt,
    dealt_in_order,
    fractions_of_words,
    integers_of_words,
    normal_numbers,
    random_exponential,
    random_integers,
    random_uniform,
    rows_of_draws,
    to_normal,
    to_waiting_time,
    transformed_words,
)
from tenon.ops.prefetch_draws import Sequel
from tenon.records import dataclass
from tenon.types import DType, float32, float64, int64


@dataclass(frozen=True, eq=False)
class Drawing:
    """A kind of draw: operators on the state, and what their references make of its words."""

    draw: Callable[..., Any]                    # (state, shape, *attributes) -> the numbers
    maker: Callable[..., Maker]                 # (shape, *attributes) -> what is made of words

    def sequel(self, like: DType, shape: Any, *attrs: Any) -> Sequel | None:
        """What makes draws of this shape along, whose numbers are of this type; None where that takes no less."""
        if any(type(size) is not int for size in shape) or like not in (float32, float64, int64):
            return None
        each, make = self.maker(shape, *attrs)
        return Sequel(rows_of_draws(shape, 0, each,
                                    make)) if 0 < math.prod(shape) * each <= MAX_PREFETCHED_WORDS else None


def _orders_of_words(shape: Any) -> Maker:
    each, make = fractions_of_words(float64)
    return each, lambda drawn: dealt_in_order(make(drawn).reshape(-1, *shape))


fractions = Drawing(lambda state, shape, dtype: random_uniform(state, shape=shape, dtype=dtype),
                    lambda shape, dtype: fractions_of_words(dtype))
normals = Drawing(lambda state, shape, dtype: normal_numbers(state, shape, dtype),
                  lambda shape, dtype: transformed_words(to_normal, dtype))
waiting_times = Drawing(lambda state, shape, dtype: random_exponential(state, shape=shape, dtype=dtype),
                        lambda shape, dtype: transformed_words(to_waiting_time, dtype))
integers = Drawing(lambda state, shape, low, count: random_integers(state, low=low, count=count, shape=shape),
                   lambda shape, low, count: integers_of_words(low, count))
orders = Drawing(lambda state, shape: dealt(random_uniform(state, shape=shape, dtype=float64)), _orders_of_words)
