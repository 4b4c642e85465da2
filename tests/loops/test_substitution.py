"""Indices replaced in expressions: what comes out means what went in, with the indices set so."""

import itertools
import random

import pytest

from tenon.loops.expressions import Binary, Buffer, Const, Expr, Index, Load, Reduce, size
from tenon.loops.simplify_expressions import substitute
from tenon.types import TensorType, int64

INDICES = [Index(name, extent) for name, extent in (("i0", 3), ("i1", 2), ("k0", 3), ("k1", 2))]
DATA = Buffer("x", TensorType(int64, (64,)), "input")


def value(x: Expr, env: dict[Expr, int]) -> int:
    """What x is where indices have these values; element n of the data is n * n."""
    match x:
        case Const(value=number):
            return int(number)
        case Index():
            return env[x]
        case Load(offset=offset):
            return value(offset, env) ** 2
        case Binary(op=op, left=left, right=right):
            a, b = value(left, env), value(right, env)
            return {"+": a + b, "*": a * b, "-": a - b}[op]
        case Reduce(indices=indices, body=body):
            turns = itertools.product(*(range(i.extent) for i in indices))
            return sum(value(body, {**env, **dict(zip(indices, turn, strict=True))}) for turn in turns)
    raise AssertionError(x)


def any_expression(choose: random.Random, depth: int) -> Expr:
    """Sums within sums, which may be over the same indices as those around them."""
    kind = choose.randrange(4) if depth else 0
    if kind == 0:
        offset = sum((i * size(choose.randrange(4)) for i in choose.sample(INDICES, 2)), size(choose.randrange(3)))
        return Load(DATA, offset, None)
    if kind == 1:
        index = choose.choice(INDICES)
        return Reduce("add", (index,), any_expression(choose, depth - 1), (size(index.extent),))
    return Binary(choose.choice("+*-"), any_expression(choose, depth - 1), any_expression(choose, depth - 1))


def test_an_index_that_a_sum_binds_is_not_the_one_outside():
    i, k = INDICES[0], INDICES[2]
    inner = Reduce("add", (k,), Load(DATA, k, None), (size(3),))
    x = Binary("+", Load(DATA, k, None), inner)
    assert substitute(x, {k: i}) is Binary("+", Load(DATA, i, None), inner)


def test_what_is_put_in_is_not_bound_by_a_sum_around_it():
    i, k = INDICES[0], INDICES[2]
    x = Reduce("add", (k,), Load(DATA, k * size(4) + i, None), (size(3),))
    found = substitute(x, {i: k})
    assert value(found, {k: 2}) == value(x, {i: 2})


@pytest.mark.parametrize("seed", range(60))
def test_replaced_is_as_if_the_indices_had_those_values(seed):
    choose = random.Random(seed)
    x = any_expression(choose, 4)
    into: dict[Index, Expr] = {i: choose.choice([size(1), *INDICES, INDICES[0] + INDICES[2]])
                               for i in choose.sample(INDICES, 2)}
    found = substitute(x, into)
    for numbers in itertools.product(*(range(i.extent) for i in INDICES)):
        env = dict(zip(INDICES, numbers, strict=True))
        assert value(found, env) == value(x, {**env, **{i: value(put, env) for i, put in into.items()}})
