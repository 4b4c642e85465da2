"""What conditions on tensors do to Python: scopes, attributes, containers, tensors in place, exceptions."""

import functools
from dataclasses import dataclass

import numpy as np
import pytest

import tenon as tn
from capture.both import VECTORS, check, outcome, same, vector
from tenon.errors import CaptureError


class Counter:
    def __init__(self):
        self.n, self.total, self.log, self.table = 0, tn.zeros(()), [0.0, 1.0], {"a": 1.0}
        self.best = None

    @property
    def level(self):
        return 1.0 if self.total > 3 else 2.0

    def add(self, x):
        if x.sum() > 0:
            self.total = self.total + x.sum()
            self.log[0] = x.sum()
            self.table["a"] = x.max()
        else:
            self.n = 5
        return self.level

    def __call__(self, x):
        return self.add(x) * 2


def test_attributes_items_methods_and_properties():
    check(lambda c, x: c.add(x) + c(x), make=Counter)


def test_an_attribute_that_was_none():
    def f(c, x):
        if c.best is None or x.sum() > c.best.sum():
            c.best = x * 1
        return c.best
    check(f, make=Counter)


def test_tensors_changed_in_place():
    def f(x):
        y = x * 1
        alias = y
        if x.sum() > 0:
            y += 1
            y[0] = 7.0
        else:
            y *= 2
        return y, alias
    check(f)


@pytest.mark.parametrize("n", [4, 0])
def test_rows_that_a_loop_writes_into_a_tensor_carry_their_gradient(n):
    """Whether the tensor requires one after a round is for its elements to tell: no flag is carried beside them."""
    def run(w, x, n):
        out = tn.zeros(5, 3)
        for k in range(n):
            x = tn.sin(x @ w)
            out[k] = x
        if n > 3:
            out *= 2
        (out.sum() + w.sum()).backward()
        return out.detach()
    results = []
    for f in (run, tn.jit(run, fullgraph=True)):
        w, x = tn.nn.Parameter(tn.arange(9.0).reshape(3, 3) / 9), tn.arange(3.0)
        results.append((f(w, x, tn.tensor(n)).numpy(), w.grad.numpy()))
    for found, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_parameters_assigned_under_a_condition():
    def program(decorate):
        w = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)

        @decorate
        def step(x):
            loss = (w * x).sum()
            if loss > 0:
                with tn.no_grad():
                    w.assign(w * 0.9)
            return loss
        for values in VECTORS:
            yield step(tn.tensor(values)), w.detach(), w.is_leaf
    for k, (want, got) in enumerate(zip(program(lambda f: f), program(lambda f: tn.jit(f, fullgraph=True)), strict=True)):
        same(want, got, f"step {k}")


TOTAL = 0


def test_globals_nonlocals_and_closures():
    def program(decorate):
        global TOTAL
        TOTAL, count = 0, 0

        @decorate
        def f(x):
            global TOTAL
            nonlocal count
            def note(k):
                nonlocal count
                count = count + k
            if x.sum() > 0:
                TOTAL = x.sum()
                note(2)
            else:
                count = count + 1
            return x * count
        for values in VECTORS:
            yield f(vector(*values)), count, TOTAL
    for k, (want, got) in enumerate(zip(program(lambda f: f), program(tn.jit), strict=True)):
        same(want, got, f"call {k}")


@dataclass
class Point:
    x: tn.Tensor
    steps: int = 0


def test_dataclasses_replaced_and_changed():
    def f(x):
        p = Point(x)
        while p.x.abs().sum() > 1:
            p = Point(p.x * 0.5, p.steps + 1)
        if p.x[0] > 0:
            p.steps = 100
        return p.x, p.steps
    check(f)


def test_decorated_functions_partials_and_lambdas():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **keywords):
            return function(*args, **keywords) * 2
        return wrapper

    @twice
    def inner(x, limit, *, sign=1.0):
        return x * sign if x.sum() > limit else -x
    half = functools.partial(inner, limit=1.0)

    def f(x, scale=2.0):
        signed = map(lambda v: v if v > 0 else -v, x)  # noqa: C417
        return half(x, sign=scale) + (lambda v: v if v[0] > 0 else v * 3)(x) + sum(signed)
    check(f)


def test_lambdas_in_one_line_and_jitted_functions_called():
    first, second = (lambda v: v * 2 if v.sum() > 0 else v), (lambda v: (lambda w: w if w[0] > 0 else -w)(v) + 1)
    inner = tn.jit(lambda v: (v and 3.0) or 2.0)
    check(lambda x: first(x) + second(x) * inner(x[0]))


def test_recursion():
    def halve(x):
        return x if x.abs().sum() < 1 else halve(x * 0.25)

    def f(x):
        return halve(x)
    check(f)


def test_recursion_deeper_than_the_graph_holds():
    def down(x):
        return x if x.sum() < 1 else down(x - 1)
    check(lambda x: down(x), [[40.0], [3.0], [-1.0]])


def test_raise_and_assert():
    class Mine(ValueError):
        pass

    def f(x):
        if x[0] < 0:
            raise Mine("below zero")
        assert x.sum() < 8, "too large"
        return x * 2
    check(f)


def test_raise_inside_loops_and_calls():
    def verify(x):
        if x.sum() > 8:
            raise ValueError("too large")
        return x

    def f(x):
        for _ in range(4):
            x = verify(x * 1.5)
        while x.sum() < 5:
            x = x + 1
            if x[1] > 4:
                raise KeyError("row")
        return x
    check(f)


def test_try_around_a_condition():
    def f(x):
        try:
            if x[0] < 0:
                raise ValueError("negative")
            y = x * 2
        except ValueError:
            y = -x
        else:
            y = y + 1
        finally:
            z = x + 1
        return y, z
    check(f)


def test_return_inside_try_finally_and_with():
    def f(c, x):
        try:
            with tn.no_grad():
                if x.sum() > 0:
                    return x * 2
            c.n = 1
            return x
        finally:
            c.best = x * 1
    check(f, make=Counter)


def test_the_line_of_the_user_is_told():
    def f(x):
        if x.sum() > 0:
            return sorted(x.tolist())
        return x
    with pytest.raises(CaptureError) as caught:
        tn.jit(f, fullgraph=True)(vector(1.0))
    assert caught.value.where.file == __file__ and "sorted(x.tolist())" in str(caught.value)


def test_an_iterator_moved_under_a_condition_runs_with_graph_breaks():
    def f(x):
        items = iter([1.0, 2.0, 3.0])
        if x.sum() > 0:
            x = x * next(items)
        return x * next(items)
    check(f, fullgraph=False)


def test_a_key_in_one_branch_runs_with_graph_breaks():
    def f(x):
        table = {}
        if x.sum() > 0:
            table["k"] = x
        return x, len(table)
    check(f, fullgraph=False)


def test_generators_of_users():
    def halves(x):
        for _ in range(3):
            x = x * 0.5 if x.sum() > 1 else x * 2
            yield x

    def f(x):
        total = x
        for y in halves(x):
            total = total + y
        return total
    check(f)


def test_modules_in_a_sequential():
    class Gate(tn.nn.Module):
        def __init__(self):
            self.scale = tn.nn.Parameter([2.0])

        def __call__(self, x):
            return x * self.scale if x.sum() > 0 else x

    model = tn.nn.Sequential(Gate(), Gate())
    check(lambda x: model(x))


def test_without_source_it_runs_with_graph_breaks():
    names = {}
    exec("def f(x):\n    return x * 2 if x.sum() > 0 else x", names)
    check(names["f"], fullgraph=False)
    assert outcome(lambda: tn.jit(names["f"], fullgraph=True)(vector(1.0)))[0] is CaptureError
