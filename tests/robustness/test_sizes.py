"""A size that changes from call to call is an integer to the program, whatever the program does with it."""

import functools
import json
import math

import numpy as np
import pytest

import tenon as tn
from tenon.graph import verify as verifier
from tenon.graph.text import parse_graph

LOG = []


class Holder:
    n = None


HOLDER = Holder()


@functools.lru_cache
def doubled(n):
    return n * 2.0


def matched(x):
    match x.shape[0]:
        case 2: return x
        case n if n > 3: return x * n
        case _: return -x


PROGRAMS = {
    "a key": lambda x: x * {2: 10.0, 3: 20.0, 4: 30.0}.get(x.shape[0], 0.0),
    "an item of a set": lambda x: x * (x.shape[0] in {2, 3}),
    "a new key": lambda x: {x.shape[0]: x},
    "a new item of a set": lambda x: x * len({x.shape[0], 2, 3}),
    "a shape as key": lambda x: x * {(2,): 1.0, (3,): 2.0, (4,): 3.0}.get(x.shape, 0.0),
    "text": lambda x: (x, f"n={x.shape[0]}", "%d" % x.shape[0], str(x.shape), repr(x.shape[0]), f"{x.shape[0]:03d}"),   # noqa: UP031
    "text as key": lambda x: x * {"2": 1.0, "3": 2.0}.get(str(x.shape[0]), 9.0),
    "json": lambda x: (x, json.dumps({"n": x.shape[0]})),
    "returned": lambda x: (x, x.shape[0], x.shape, x.size, len(x), x.shape[0] // 2),
    "the shape alone": lambda x: x.shape,
    "times a float": lambda x: x * (x.shape[0] * 1.5),
    "over a number": lambda x: x * (x.shape[0] / 2 + 1 / x.shape[0]),
    "a power": lambda x: x * (x.shape[0] ** 0.5 + 2 ** x.shape[0]),
    "bits": lambda x: x * ((x.shape[0] << 1) + (x.shape[0] & 1) + x.shape[0].bit_length()),
    "division": lambda x: x * (divmod(x.shape[0], 2)[1] + x.shape[0] % 2 + 7 % x.shape[0] + x.shape[0] // 2),
    "rounding": lambda x: x * (round(x.shape[0] / 3) + math.floor(x.shape[0]) + abs(x.shape[0] - 4)),
    "functions of math": lambda x: x * (math.sqrt(x.shape[0]) + math.log(x.shape[0]) + math.prod(x.shape)),
    "a float": lambda x: x * (float(x.shape[0]) + int(x.shape[0])),
    "isinstance": lambda x: x * isinstance(x.shape[0], int),
    "type": lambda x: x * (type(x.shape[0]) is int),
    "a remembered function": lambda x: x * doubled(x.shape[0]),
    "match": matched,
    "comparisons": lambda x: x * (2 < x.shape[0] < 4) + (x.shape == (3,)) + (x.shape < (3,)) + bool(x.shape[0]),
    "min and max": lambda x: x[:max(1, x.shape[0] - 2)] * min(x.shape[0], 3),
    "sorted": lambda x: x * sorted([3, x.shape[0], 4])[0] + [2, 3, 4].count(x.shape[0]),
    "an index": lambda x: x * [1.0, 2.0, 3.0, 4.0, 5.0][x.shape[0]],
    "a range": lambda x: sum((x * k for k in range(x.shape[0])), x),
    "repeated": lambda x: (tn.stack([x] * x.shape[0]), "ab" * x.shape[0]),
    "enumerated": lambda x: [v * k for k, v in enumerate(x)],
    "NumPy": lambda x: x + tn.asarray(np.ones(x.shape, np.float32)) * np.sqrt(x.shape[0]),
    "an index of NumPy": lambda x: x * float(np.arange(9.0)[x.shape[0]]),
    "slices": lambda x: (x[:x.shape[0] // 2], x[x.shape[0] // 2:], x[-x.shape[0]:]),
    "made from it": lambda x: (tn.arange(x.shape[0]) + x, tn.eye(x.shape[0]) @ x, tn.full((2,), x.shape[0])),
    "reshape": lambda x: x.reshape(1, -1).reshape(x.shape[0]),
    "appended": lambda x: (LOG.append(x.shape[0]), x)[1],
    "set": lambda x: (setattr(HOLDER, "n", x.shape), x)[1],
    "hash": lambda x: x * (hash(x.shape[0]) % 7),
}


def plain(value):
    if isinstance(value, tn.Tensor):
        return np.round(value.numpy().astype(float), 4).tolist()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else (type(value), value)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_size_is_an_integer(program):
    def seen(function):
        LOG.clear()
        for n in (3, 4, 2, 1, 3, 4):
            result = function(tn.arange(1, n + 1) * 1.0)
            yield plain(result), plain(LOG), plain(HOLDER.n)
    assert list(seen(tn.jit(program))) == list(seen(program))


def test_a_size_that_is_needed_as_a_number_is_one_from_then_on():
    @tn.jit
    def f(x, y):
        return x * {x.shape[0]: 2.0}[x.shape[0]] + y.sum()
    for n in (3, 4, 5):
        f(tn.ones(n), tn.ones(n + 1))
    types = [[str(t) for t in c.types] for r in f.records.values() for c in r.captures]
    assert types == [["f32[3]", "f32[4]"], ["f32[4]", "f32[N0]"], ["f32[5]", "f32[N0]"]]


def test_sizes_that_must_be_equal_are_one_symbol():
    f = tn.jit(lambda x, y: x + y)
    for n, m in ((3, 1), (4, 4), (5, 5), (6, 6)):
        assert f(tn.ones(n), tn.ones(m)).tolist() == [2.0] * n
    types = [[str(t) for t in c.types] for r in f.records.values() for c in r.captures]
    assert types[1][0] == types[1][1] and len(types) == 2
    with pytest.raises(ValueError, match="do not broadcast"):
        f(tn.ones(6), tn.ones(7))


def test_a_thousand_lengths_make_few_programs():
    @tn.jit(fullgraph=True)
    def f(x, w):
        h = tn.tanh(x @ w)
        return tn.softmax(h, axis=0).sum() + h.mean() * x.shape[0]
    w = tn.asarray(np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32))
    for n in range(1, 1001):
        x = tn.asarray(np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32))
        got = float(f(x, w))
        if n < 10 or n % 100 == 0:
            assert got == pytest.approx(float(f.function(x, w)), rel=1e-4)
    assert sum(len(r.captures) for r in f.records.values()) <= 3


def test_sizes_zero_and_one_are_right_after_others():
    f = tn.jit(lambda x, y: (x * 2 + y, x.sum(axis=0), tn.concat([x, x])))
    for n, m in ((3, 3), (4, 4), (0, 0), (1, 1), (1, 5), (0, 1), (5, 1), (7, 7)):
        x, y = tn.ones((n, 2)), tn.ones((m, 2))
        for got, want in zip(f(x, y), f.function(x, y), strict=True):
            assert got.shape == want.shape and got.tolist() == want.tolist()


def attention(x, cache):
    keys = tn.concat([cache, x])
    return tn.softmax(x @ keys.T, -1) @ keys, keys


RELATED = {     # a function, the shapes of its arguments for a length, and how many captures are enough
    "one more": (lambda x, y: x + y[1:], lambda n: [(n,), (n + 1,)], 3),
    "twice as many": (lambda x, y: x.reshape(-1, 2).sum(axis=1) + y, lambda n: [(2 * n,), (n,)], 3),
    "an even number": (lambda x: x.reshape(x.shape[0] // 2, 2).sum(axis=0), lambda n: [(2 * n,)], 3),
    "thirds with a rest": (lambda x: x[:x.shape[0] // 3 * 3].reshape(-1, 3).sum(axis=0), lambda n: [(n,)], 9),
    "filled up to eight": (lambda x: tn.concat([x, tn.zeros(-x.shape[0] % 8)]).reshape(-1, 8), lambda n: [(n,)], 25),
    "a mask cut to size": (lambda x, m: tn.where(m[:x.shape[0], :x.shape[0]] > 0, x @ x.T, 0.0).sum(),
                           lambda n: [(n, 3), (64, 64)], 3),
    "a square": (lambda x, y: x @ y + y.T[:, :x.shape[0]], lambda n: [(n, n), (n, n)], 3),
    "a cache that grows": (lambda x, c: attention(x, c)[0], lambda n: [(1, 4), (n, 4)], 3),
}


@pytest.mark.parametrize(("function", "shapes", "most"), RELATED.values(), ids=RELATED)
def test_relations_between_sizes_are_kept_and_checked_at_entry(function, shapes, most):
    jitted, random = tn.jit(function), np.random.default_rng(0)
    for n in [3, 4, 5, 1, 2, 0, *range(6, 40)]:
        arguments = [tn.asarray(random.standard_normal(shape).astype(np.float32)) for shape in shapes(n)]
        try:
            want = function(*arguments)
        except Exception as error:
            with pytest.raises(type(error)):
                jitted(*arguments)
            continue
        np.testing.assert_allclose(jitted(*arguments).numpy(), want.numpy(), rtol=1e-4, atol=1e-5, err_msg=str(n))
    assert sum(len(r.captures) for r in jitted.records.values()) <= most + 3    # sizes 0, 1 and the first one
    assert all(r.eager is None for r in jitted.records.values())


def test_sizes_that_stand_in_another_relation_are_captured_again():
    f = tn.jit(lambda x, y: x + y[1:])
    for n in (3, 4, 5):
        f(tn.ones(n), tn.ones(n + 1))
    assert f(tn.ones(6), tn.ones(2)).shape == (6,)
    with pytest.raises(ValueError, match="do not broadcast"):
        f(tn.ones(6), tn.ones(8))


def test_a_size_that_equals_a_width_by_chance_does_not_pin_the_axis():
    weight = tn.asarray(np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32))
    bias = tn.asarray(np.array([1.0, -1.0], np.float32))

    def function(x):
        return tn.tanh(x @ weight + bias) * x.shape[0]
    for order in (range(1, 40), (3, 2, 4, 2, 3, 5, 6), (2, 7, 3, 8, 2, 9), (7, 8, 3, 2, 9)):
        f = tn.jit(function)
        for n in order:
            x = tn.asarray(np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32))
            np.testing.assert_allclose(f(x).numpy(), function(x).numpy(), rtol=1e-5, atol=1e-6)
        assert sum(len(r.captures) for r in f.records.values()) <= 4


def test_a_size_that_is_compared_with_a_number_is_asked_in_every_call():
    f = tn.jit(lambda x: x * (2 if x.shape[0] == 4 else 3))
    for n in (3, 4, 5, 4, 6, 7, 4, 3):
        assert f(tn.ones(n)).tolist() == [2.0 if n == 4 else 3.0] * n
    assert sum(len(r.captures) for r in f.records.values()) <= 3


def test_sizes_that_were_equal_are_told_apart_when_they_differ():
    f = tn.jit(lambda x, y: x.sum() + y.sum())
    for n, m in ((3, 3), (4, 4), (5, 6), (7, 7), (8, 9), (10, 2)):
        assert float(f(tn.ones(n), tn.ones(m))) == n + m
    assert sum(len(r.captures) for r in f.records.values()) <= 3


def test_a_node_is_verified_once_for_sizes_that_are_spelled_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(verifier, "_check_rule", lambda node: looked_at.append(str(node.output.type)))
    for size in ("OFTEN", "OFTEN", "2*OFTEN", "OFTEN"):
        verifier.verify(parse_graph(f"def f(x: f32[{size}]):\n    y: f32[{size}] = sin(x)\n    return y"))
    assert looked_at[-2:] == ["f32[OFTEN]", "f32[2*OFTEN]"] and len(looked_at) == 2
