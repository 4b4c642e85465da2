"""Loops whose ends depend on tensors, and loops over tensors, in one graph."""

import numpy as np

import tenon as tn
from capture.both import VECTORS, check, vector
from tenon.capture.convert import traced_iterables


def test_while_with_counter_and_else():
    def f(x):
        steps = 0
        while x.abs().max() > 0.5:
            x = x * 0.5
            steps += 1
        else:
            x = x + 10
        return x, steps
    check(f)


def test_break_continue_and_else():
    def f(x):
        n, total = 0, 0.0
        while n < 10:
            n += 1
            if x[0] * n > 6:
                break
            if x[1] > 0:
                continue
            total = total + x.sum()
        else:
            total = total - 1
        return total, n
    check(f)


def test_while_true():
    def f(x):
        n = 0
        while True:
            x = x * 0.5
            n += 1
            if x.abs().sum() < 0.1:
                break
        return x, n
    check(f)


def test_return_from_nested_loops():
    def f(x):
        for i in range(3):
            for j in range(3):
                if x.sum() * i > 2 + j:
                    return x * 10, i, j
            x = x + 0.1
        return x, -1, -1
    check(f)


def test_return_of_what_a_turn_computes():
    def f(x):
        k = 0
        while True:
            x = x * 0.8
            k += 1
            if x.abs().sum() < 0.3:
                break
            if k > 6:
                return x * 0 - 1, k
            if x[0] < -0.5:
                return x + 5, 0
        return x, k
    check(f)


def test_return_from_while_loops():
    def f(x):
        n = 0
        while x.sum() < 50:
            x = x + 1
            while x[0] > 5:
                if x.sum() > 20:
                    return x * 2
                x = x - 0.5
                n += 1
                if n > 30:
                    return x
            n += 1
            if n > 60:
                break
        return x - 1
    check(f)


def test_rows():
    def f(x):
        total = tn.zeros(())
        for row in x.reshape(-1, 1):
            if row[0] > 0:
                total = total + row[0]
        return total
    check(f)


def test_many_rows_are_a_loop_in_the_graph():
    def f(x):
        h = tn.zeros((3,))
        for row in x:
            h = tn.tanh(h * 0.5 + row)
        return h
    x = tn.asarray(np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32))
    jitted = tn.jit(f, fullgraph=True)
    np.testing.assert_allclose(jitted(x).numpy(), f(x).numpy(), rtol=1e-5)


def test_rows_with_break_enumerate_zip_and_list():
    def f(x):
        found, kept = -1, []
        rows = x.reshape(-1, 1).broadcast_to((x.shape[0], 20)).T
        for k, (row, other) in enumerate(zip(rows, reversed(rows))):
            if row[0] * k > 4:
                found = k
                break
            x = x + other * 0.1
        for row in rows:
            kept.append(row.sum())  # noqa: PERF401
        return x, found, sum(kept)
    check(f)


def test_range_of_a_tensor():
    def f(x):
        n = x.abs().sum().astype("int64")
        total = x
        for k in range(n):
            total = total + k
        for k in range(n, 0, -2):
            total = total * 1.1 + k
        return total
    check(f)


def test_none_before_a_loop():
    def f(x):
        best = None
        for k in range(4):
            y = x.sum() * k
            if best is None or y > best:
                best = y
        return best
    check(f)


def test_none_before_a_while_loop():
    def f(x):
        last, n = None, 0
        while x.abs().sum() > 1:
            last = x
            x = x / 2
            n += 1
        return (last, n) if last is not None else (x, n)
    check(f)


def test_a_number_becomes_a_tensor():
    def f(x):
        total = 0
        while x.abs().sum() > 1:
            total = total + x.sum()
            x = x / 2
        return total
    check(f)


def test_a_variable_of_the_body_is_read_after_the_loop():
    def f(x):
        while x.abs().sum() > 1:
            y = x * 3
            x = x / 2
        return y
    check(f)


def test_python_conditions_first_and_tensors_later():
    def f(x):
        limit = True
        n = 0
        while limit:
            n += 1
            limit = (x * 0 + n < 3).any() if n < 3 else x.sum() > n
        return x, n
    check(f)


def test_counters_in_containers_and_objects():
    class Box:
        pass

    def f(box, x):
        seen = {"n": 0, "last": x}
        while x.abs().sum() > 1:
            x = x / 2
            seen["n"] += 1
            seen["last"] = x
            box.steps += 1
            box.values[0] = x
        return seen, x

    def make():
        box = Box()
        box.steps, box.values = 0, [None]
        box.values[0] = tn.zeros((3,))
        return box
    check(f, VECTORS[:3], make=make)


def test_gradients_through_loops_and_branches():
    def f(x, w):
        loss = lambda w: steps(x * w)
        def steps(y):
            while y.abs().sum() > 1:
                if y[0] > 0:
                    y = y * 0.5
                else:
                    y = y * 0.25 + 0.1
            return (y * y).sum()
        return tn.grad(loss)(w)
    check(f, [(v, [2.0, 1.0, -3.0]) for v in VECTORS])


def test_backward_after_a_converted_loop():
    def program(decorate):
        w = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)

        @decorate
        def step(x):
            y = x * w
            while (y * y).sum() > 1:
                y = y * 0.5
            y.sum().backward()
            return y
        for values in VECTORS:
            step(tn.tensor(values))
            yield w.grad.numpy().copy()
    for want, got in zip(program(lambda f: f), program(lambda f: tn.jit(f, fullgraph=True)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_gradient_from_outside_goes_through():
    def f(x):
        while (x * x).sum() > 1:
            x = x * 0.5
        return x.sum() if x[0] > 0 else (x * x).sum()
    jitted = tn.jit(f, fullgraph=True)
    for values in VECTORS:
        grads = []
        for g in (f, jitted):
            x = tn.tensor(values, requires_grad=True)
            g(x).backward()
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5)


def test_a_stopped_gradient_stays_stopped_in_a_branch():
    def f(x):
        if x.sum() > 0:
            y = x * x.detach()
        else:
            with tn.no_grad():
                y = x * 3
            y = y + x
        return y.sum()
    jitted = tn.jit(f, fullgraph=True)
    for values in VECTORS:
        grads = []
        for g in (f, jitted):
            x = tn.tensor(values, requires_grad=True)
            g(x).backward()
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5)


def test_a_list_that_grows_as_often_as_the_data_say_runs_with_graph_breaks():
    def f(x):
        parts = []
        while x.abs().sum() > 1:
            parts.append(x)
            x = x / 2
        return parts
    check(f, fullgraph=False)


def endless():
    """An iterator of the program's own."""
    k = 0
    while True:
        k += 1
        yield k


def test_a_loop_that_only_the_data_end_is_given_up_early(monkeypatch):
    """Each iteration stands within the one before: a thousand are too deep for Python, and slow long before."""
    monkeypatch.setattr(traced_iterables, "MAX_LEFT", 5)

    def f(x):
        for k in endless():
            x = x + k
            if x.sum() > 10:
                break
        return x
    check(f, fullgraph=False)
    jitted = tn.jit(f)
    jitted(vector(1.0))
    assert "has no other end" in str(tn.explain(jitted))


def test_a_loop_that_is_left_has_no_branches_for_its_flags_and_counts():
    def f(x):
        found, n = [], 0
        while True:
            x, n = x * 0.5, n + 1
            found.append(x)
            if x.abs().sum() < 0.1:
                break
        return found, max(n, 3)
    check(f)
    assert " cond(" not in str(tn.jit(f).graph(vector(1.0, 2.0)))
