"""A loop that runs as often as a changing number or size says is a loop of the graph; one that cannot be is written out."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn

tn.manual_seed(3)
w, layers, cell = tn.rand(4, 4), [tn.rand(4, 4) * 0.3 for _ in range(30)], nn.GRUCell(4, 4)


def chained(x, n):
    for i in range(n):
        x = tn.tanh(x @ w) * (i + 1)
    return x


def backwards(x, n):
    for t in reversed(range(1, n)):
        x = x * 0.9 + t if t % 2 else x - 1
    return x


def listed(x, n):
    return tn.stack([x * i for i in range(n)]) if n else x


def collected(x, n):
    found = []
    for _ in range(n):
        x = tn.tanh(x @ w)
        found.append(x.sum())
    return found


def left(x, n):
    for _ in range(n):
        x = x * 0.7
        if x.sum() < 0.5:
            break
    else:
        x = x + 100
    return x


def nested(x, n):
    for i in range(n):
        for j in range(i):
            x = x * 1.01 + j
    return x, n


def trained(x, n):
    v = tn.ones(4, requires_grad=True)
    opt = tn.optim.SGD([v], lr=0.01)
    for _ in range(n):
        opt.zero_grad()
        ((x @ w * v).sum() ** 2 * 1e-3).backward()
        opt.step()
    return v.detach()


def numbered(x, n):
    last = -1
    for last in range(n):
        x = x + last
    return x, last


def counted_up(x, n):
    i = 0
    while i < n:
        x = tn.tanh(x @ w) * (i + 1)
        i += 1
    return x, i


def counted_down(x, n):
    while n > 0:
        x = x * 0.9 + n
        n -= 1
    return x


def until_it_is_small(x, n):
    turns = 0
    while turns < n and x.sum() > 0.5:
        x = x * 0.7
        turns += 1
    return x, turns


def of_the_numbers_of_fibonacci(x, n):
    a, b = 0, 1
    while a < n:
        a, b = b, a + b
    return x * a, b


def skipping(x, n):
    i = 0
    while i < n:
        i += 1
        if i % 2:
            continue
        x = x * 1.1 + i
        if i > 10:
            break
    else:
        x = -x
    return x, i


def until_none_is_left(x, n):
    while n:
        x = tn.tanh(x @ w) + n
        n -= 1
    return x, n


def left_at_the_top(x, n):
    i = 0
    while True:
        if i >= n:
            break
        x = x * 0.9 + i
        i += 1
    return x, i


def left_at_the_end(x, n):
    i = 0
    while True:
        x, i = x * 0.9 + i, i + 1
        if i >= n: break
    return x, i


def left_by_the_data_too(x, n):
    while True:
        if x.sum() > 50 or n <= 0:
            break
        x, n = x + 1, n - 1
    return x, n


def captures(jitted):
    return [captured for record in jitted.records.values() for captured in record.captures]


def close(found, wanted):
    if isinstance(wanted, (list, tuple)):
        return type(found) is type(wanted) and len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and close(list(found.values()), list(wanted.values()))
    if isinstance(wanted, tn.Tensor):
        return found.shape == wanted.shape and np.allclose(found.numpy(), wanted.numpy(), 1e-4, 1e-5)
    return type(found) is type(wanted) and found == wanted


@pytest.mark.parametrize("function", [chained, backwards, listed, collected, left, nested, trained, numbered,
                                      counted_up, counted_down, until_it_is_small, of_the_numbers_of_fibonacci,
                                      skipping, until_none_is_left, left_at_the_top, left_at_the_end,
                                      left_by_the_data_too])
def test_a_number_that_changes(function):
    jitted, x = tn.jit(function), tn.rand(2, 4)
    for n in (2, 7, 3, 1, 0, 17, 5, 64, 7):
        assert close(jitted(x, n), function(x, n)), n
    assert len(captures(jitted)) <= 4, tn.explain(jitted)


def by_place(x):
    h = tn.zeros(2, 4)
    for t in range(x.shape[1]):
        h = cell(x[:, t], h)
    return h


def by_row(x):
    h = tn.zeros(2, 4)
    for row in x.transpose(0, 1):
        h = cell(row, h)
    return h


def by_length(x):
    total = x.sum() / len(x)
    for k in range(len(x)):
        total = total + x[k].sum() / float(len(x))
    return total


@pytest.mark.parametrize("function", [by_place, by_row, by_length])
def test_a_size_that_changes(function):
    jitted = tn.jit(function)
    for n in (2, 7, 3, 1, 17, 5, 40, 7):
        x = tn.rand(2, n, 4) if function is not by_length else tn.rand(n, 4)
        assert close(jitted(x), function(x)), n
    assert len(captures(jitted)) <= 3, tn.explain(jitted)


def gradients(function, x, n):
    cell.zero_grad()
    function(x, n).backward()
    return [p.grad.clone() for p in cell.parameters()]


def test_gradients_of_it():
    def loss(x, n):
        h = tn.zeros(2, 4)
        for t in range(n):
            h = cell(x[:, t], h)
        return (h ** 2).mean()
    jitted, step = tn.jit(loss), tn.jit(lambda x, n: gradients(loss, x, n))
    for n in (3, 5, 1, 8, 13, 2, 40):
        x = tn.rand(2, 40, 4)
        wanted = gradients(loss, x, n)
        assert close(gradients(jitted, x, n), wanted) and close(step(x, n), wanted), n
    assert len(captures(jitted)) <= 3 and len(captures(step)) <= 3


def modules(x, n):
    for k in range(n):
        x = tn.tanh(x @ layers[k])
    return x


def named(x, n):
    names = []
    for k in range(n):
        names.append(f"layer {k}")
        x = x + 1
    return x, names


def measured(x, n):
    return x * len(range(n)), list(range(n)), range(n)[-1], n - 1 in range(n)


def refused(x, n):
    for k in range(n):
        x = x * len("abc"[:k]) if k < 9 else x + layers[k + 20]
    return x


def told(x, n):
    for k in range(n):
        x = x * 0.5
        print(k, x.sum().item())
    return x


@pytest.mark.parametrize("function", [modules, named, measured, refused, told])
def test_what_no_loop_of_the_graph_can_do_is_written_out(function):
    jitted, x = tn.jit(function), tn.rand(4, 4)
    for n in (2, 7, 3, 1, 9, 5, 7):
        assert close(jitted(x, n), function(x, n)), n
    assert "with graph breaks" not in str(tn.explain(jitted)) and "split" not in str(tn.explain(jitted))


def test_its_errors_are_those_of_python():
    jitted, x = tn.jit(modules), tn.rand(4, 4)
    for n in (2, 5, 40, 3, 40):
        if n < 40:
            assert close(jitted(x, n), modules(x, n))
        else:
            with pytest.raises(IndexError, match="list index out of range"):
                jitted(x, n)


def test_one_that_has_to_be_written_out_leaves_others_be():
    def both(x, n, m):
        for k in range(n):
            x = tn.tanh(x @ layers[k])
            str(k)
        for _ in range(m):
            x = tn.tanh(x @ w)
        return x
    jitted, x = tn.jit(both), tn.rand(2, 4)
    for m in (2, 5, 3, 9, 7, 1):
        assert close(jitted(x, 2, m), both(x, 2, m))
    assert len(captures(jitted)) <= 3
    assert close(jitted(x, 3, 4), both(x, 3, 4)) and close(jitted(x, 3, 8), both(x, 3, 8))


def outputs(x):
    h, found = tn.zeros(x.shape[0], 4), []
    for t in range(x.shape[1]):
        h = cell(x[:, t], h)
        found.append(h)
    return tn.stack(found, 1) + x


def of_both_directions(x):
    h, found, last = tn.zeros(x.shape[0], 4), [x[:, 0]], []
    for t in range(1, x.shape[1]):
        found.append(found[-1] * 0.5 + x[:, t])
    for t in reversed(range(x.shape[1])):
        h = cell(x[:, t], h)
        last.append(h)
    last.reverse()
    return tn.cat([tn.stack(found, axis=1), tn.stack(last, axis=1)], -1)


def longer(x):
    found, logs = [], {"sum": [], "mean": []}
    for t, row in zip(range(x.shape[1]), x.transpose(0, 1), strict=False):
        for k in range(x.shape[0]):
            found.append(x[k, t] * t)       # noqa: PERF401
        logs["sum"].append(row.sum())
        logs["mean"] += [row.mean()]
    found.append(x[0, 0])
    return tn.stack(found), {name: tn.stack(kept) for name, kept in logs.items()}, len(found)


def made_at_once(x):
    return tn.cat([tn.tanh(x[:, t]) * t for t in range(x.shape[1])], 1)


def of_some(x):
    found = []
    for t in range(x.shape[1]):
        if t % 3 == 0:
            found.append((x[:, t].sum(), t))        # noqa: PERF401
    return found


def until(x):
    found = []
    for t in range(x.shape[1]):
        found.append(x[:, t].sum())
        if found[-1] > 6:
            break
    return tn.stack(found)


@pytest.mark.parametrize("function", [outputs, of_both_directions, longer, made_at_once, of_some, until])
def test_lists_that_it_prolongs(function):
    jitted = tn.jit(function)
    for rows, n in ((3, 4), (3, 7), (3, 5), (5, 6), (2, 270), (3, 2), (4, 4), (1, 1)):
        x = tn.rand(rows, n, 4)
        assert close(jitted(x), function(x)), (rows, n)
    assert len(captures(jitted)) <= 6 and not jitted.loops.written_out


def test_gradients_through_lists_that_it_prolongs():
    jitted = tn.jit(lambda x, n: outputs(x[:, :n]).pow(2).mean())
    for n in (3, 5, 4, 9, 2):
        x = tn.rand(2, 40, 4)
        assert close(gradients(jitted, x, n), gradients(lambda x, n: outputs(x[:, :n]).pow(2).mean(), x, n)), n
    assert len(captures(jitted)) <= 3


def test_one_that_raises_in_some_turn_is_written_out():
    """As a loop of the graph, each call that comes to the error was made twice."""
    def tried(x, n):
        errors = 0
        for k in range(n):
            try:
                if k == 2:
                    raise ValueError
                x = x + k
            except ValueError:
                errors += 1
        return x, errors
    jitted, x = tn.jit(tried), tn.rand(2)
    for n in (1, 5, 4, 3, 6, 2, 5):
        assert close(jitted(x, n), tried(x, n))
    assert jitted.loops.written_out and len(captures(jitted)) >= 3


def test_a_rate_that_falls_in_a_loop():
    def descended(x, rate):
        while rate > 1e-3:
            x = x - rate * x
            rate *= 0.5
        return x, rate
    jitted, x = tn.jit(descended), tn.rand(4)
    for rate in (0.5, 0.3, 0.1, 1e-4, 0.8, 0.01):
        assert close(jitted(x, rate)[0], descended(x, rate)[0]), rate
        assert jitted(x, rate)[1] == descended(x, rate)[1]
    assert len(captures(jitted)) <= 3, tn.explain(jitted)


def test_a_loop_that_no_graph_holds_is_written_out():
    def made(x, n):
        found, i = {}, 0
        while i < n:
            found[f"w{i}"] = x * i
            i += 1
        return found
    jitted, x = tn.jit(made), tn.rand(2)
    for n in (2, 3, 1, 5, 3):
        assert close(jitted(x, n), made(x, n))


def test_a_counter_of_an_object():
    class Walk:
        at = 0

    def walked(x, n):
        while walk.at < n:
            x = x + walk.at
            walk.at += 1
        return x
    seen = []
    for jit in (lambda f: f, tn.jit):
        walk, step = Walk(), jit(walked)
        seen.append([(step(tn.ones(2), n).tolist(), walk.at) for n in (2, 5, 5, 9, 12, 3, 20)])
    assert seen[0] == seen[1]
