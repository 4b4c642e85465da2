"""Control flow in the graph: what runs eagerly in Python is one node of a captured program, with the same gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.autodiff import gradient_graph
from tenon.capture.pytree import flatten
from tenon.errors import ArgumentError, CaptureError, DTypeError, GraphError, ShapeError
from tenon.graph.interpret import interpret
from tenon.graph.ir import Value
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.ops.define import define
from tenon.pipeline import compile, optimize
from tenon.types import TOKEN


def numbers(tree: Any) -> list[np.ndarray]:
    return [x.numpy() for x in flatten(tree)[0] if x is not None]


def same(left: Any, right: Any, tolerance: float = 1e-10) -> None:
    assert flatten(left)[1] == flatten(right)[1]
    for x, y in zip(numbers(left), numbers(right), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def both(function: Callable[..., Any], *args: Any) -> Any:
    """The result, which is the same eagerly, jitted, and by the reference interpreter, whose graph has a text form."""
    expected = function(*args)
    jitted = tn.jit(function, fullgraph=True)
    same(jitted(*args), expected)
    captured = jitted.capture(*args)
    graph = verify(captured.graph)
    text = print_graph(graph, locations=False)
    assert print_graph(verify(parse_graph(text)), locations=False) == text
    return expected


def gradients(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """By central differences."""
    found = []
    for k, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = [x.copy() for x in arrays]
                moved[k][index] += sign * 1e-6
                ends.append(function(*map(tn.tensor, moved)).item())
            slope[index] = (ends[0] - ends[1]) / 2e-6
        found.append(slope)
    return found


def check_gradients(function: Callable[..., Any], *arrays: Any, order: int = 2) -> None:
    """First derivatives, eagerly and jitted in three ways; and those of the sum of the gradients."""
    arrays = tuple(np.asarray(a, np.float64) for a in arrays)
    which = tuple(range(len(arrays)))
    expected = gradients(function, *arrays)
    outside = tn.grad(tn.jit(function, fullgraph=True), argnums=which)
    inside = tn.jit(tn.grad(function, argnums=which), fullgraph=True)
    ways = [tn.grad(function, argnums=which), outside, inside, tn.jit(outside, fullgraph=True)]
    for gradient in ways if order > 1 else ways[1:3]:
        for got, wanted in zip(gradient(*map(tn.tensor, arrays)), expected, strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-6, atol=1e-7)
    if order > 1:
        def slope(*xs: Any) -> Any:
            return sum((g * (k + 1)).sum() for k, g in enumerate(tn.grad(function, argnums=which)(*xs)))
        check_gradients(slope, *arrays, order=order - 1)


# ---------------------------------------------------------------- cond and switch

def test_cond_runs_one_branch() -> None:
    def f(p: Any, x: Any, y: Any) -> Any:
        return tn.cond(p, lambda a, b: {"sum": a + b, "n": (1, None)}, lambda a, b: {"sum": a - b, "n": (2, None)}, x, y)
    for p in (True, False):
        out = both(f, tn.tensor(p), tn.tensor([1.0, 2.0]), tn.tensor([3.0, 4.0]))
        assert out["n"][1] is None and out["n"][0].item() == (1 if p else 2)


def test_requirement_38_a_tensor_chooses_the_weights() -> None:
    rng = np.random.default_rng(0)
    w1, w2, b = (tn.tensor(rng.normal(size=shape), requires_grad=True) for shape in ((2, 3), (2, 3), (2, 1)))

    def f(flag: Any, x: Any) -> Any:
        y = tn.cond(flag > 0, lambda: w1 @ x, lambda: w2 @ x)
        return tn.relu(y + b).sum()
    x = tn.tensor(rng.normal(size=(3, 4)))
    jitted = tn.jit(f, fullgraph=True)
    for flag in (1.0, -1.0):
        found = []
        for function in (f, jitted):
            for w in (w1, w2, b):
                w.grad = None
            function(tn.tensor(flag), x).backward()
            found.append([np.zeros(w.shape) if w.grad is None else w.grad.numpy() for w in (w1, w2, b)])
        for eager, compiled in zip(*found, strict=True):
            np.testing.assert_allclose(eager, compiled, rtol=1e-12)
        assert not found[1][1 if flag > 0 else 0].any()


def test_the_branch_not_taken_gives_no_nan() -> None:
    def f(x: Any) -> Any:
        return tn.cond(x.sum() > 0, lambda: tn.sqrt(x).sum(), lambda: (x * x).sum())
    check_gradients(f, [1.0, 2.0])
    x = tn.tensor([-1.0, 0.0])
    for gradient in (tn.grad(f), tn.jit(tn.grad(f), fullgraph=True)):
        np.testing.assert_allclose(gradient(x).numpy(), [-2.0, 0.0])


def test_numbers_are_weak_beside_tensors() -> None:
    def f(p: Any, x: Any) -> Any:
        return tn.cond(p, lambda: x, lambda: 2)
    assert both(f, tn.tensor(True), tn.tensor(1.5, dtype="f64")).dtype is tn.float64
    jitted = tn.jit(f, fullgraph=True)(tn.tensor(False), tn.tensor(1.5, dtype="f64"))
    assert jitted.dtype is tn.float64 and jitted.item() == 2


SIDES: dict[str, tuple[Any, Any]] = {
    "a tensor": (lambda x: 1.0, lambda x: x), "whole": (lambda x: 2, lambda x: x * 0.1), "both": (lambda x: 1, lambda x: 2.5),
    "a truth": (lambda x: True, lambda x: 2), "in a nest": (lambda x: {"a": (0.1, x)}, lambda x: {"a": (x, 0.1)}),
}


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_a_number_has_the_type_of_the_other_branch_eagerly_and_compiled(name: str, dtype: str) -> None:
    def f(p: Any, x: Any) -> Any:
        return tn.cond(p, *SIDES[name], x), tn.switch(p.astype("i64"), [*SIDES[name]], x)
    x = tn.tensor(0.3, dtype=dtype)
    for p in (True, False):
        eager, compiled = f(tn.tensor(p), x), tn.jit(f, fullgraph=True)(tn.tensor(p), x)
        batched = tn.vmap(f)(tn.tensor([p, not p]), tn.stack([x, x]))
        for one, other, many in zip(*(flatten(out)[0] for out in (eager, compiled, batched)), strict=True):
            assert one.dtype is other.dtype is many.dtype
            assert one.tolist() == other.tolist() == many.tolist()[0]


def test_a_number_of_a_higher_kind_than_the_other_branch_is_refused() -> None:
    def f(x: Any) -> Any:
        return tn.cond(x > 0, lambda: 0.5, lambda: x)
    for run in (f, tn.jit(f), lambda x: tn.vmap(f)(x[None])):
        with pytest.raises(DTypeError, match=r"is i64 in the false branch and 0\.5 in the true branch"):
            run(tn.tensor(3))


def test_a_branch_that_cannot_be_traced_is_not_asked_for_its_type() -> None:
    made: list[int] = []

    def other() -> Any:
        made.append(1)
        return np.sin(float(tn.tensor(1.0)))
    assert tn.cond(tn.tensor(True), lambda: 1.5, other).dtype is tn.float32
    assert made == []

    def factorial(n: Any) -> Any:
        return tn.cond(n <= 1, lambda: 1, lambda: n * factorial(n - 1))
    assert factorial(tn.tensor(4)).item() == 24


def test_switch_clamps_the_index() -> None:
    branches = [lambda x: x, lambda x: x * 2, lambda x: x * 3]
    for index, factor in ((-7, 1), (0, 1), (1, 2), (2, 3), (9, 3)):
        assert both(lambda i, x: tn.switch(i, branches, x), tn.tensor(index), tn.tensor(5.0)).item() == 5 * factor
    check_gradients(lambda x: tn.switch((x > 0).astype("i64").sum(), [tn.sin, tn.exp, tn.square], x).sum(), [0.3, -0.4])


def test_branches_must_agree() -> None:
    p, x = tn.tensor(True), tn.tensor([1.0, 2.0])
    jitted = tn.jit(lambda p, t, f: tn.cond(p, t, f), fullgraph=True)
    with pytest.raises(CaptureError, match=r"the result has the shape \[2\] in the true branch and \[\]"):
        jitted(p, lambda: x, lambda: x.sum())
    with pytest.raises(CaptureError, match=r"f32\[2\] in the true branch and f64\[2\]"):
        jitted(p, lambda: x, lambda: x.astype("f64"))
    with pytest.raises(CaptureError, match="returns"):
        jitted(p, lambda: x, lambda: (x, x))
    with pytest.raises(ShapeError, match="one truth value"):
        tn.cond(x > 0, lambda: x, lambda: x)


def test_a_branch_assigns_tensors_from_outside() -> None:
    counter = tn.tensor(0)

    def f(x: Any) -> Any:
        def bump() -> Any:
            counter.assign(counter + 1)
            return x * 2
        return tn.cond(x > 0, bump, lambda: x)
    jitted = tn.jit(f, fullgraph=True)
    for value in (1.0, -1.0, 2.0, 3.0):
        jitted(tn.tensor(value))
    assert counter.item() == 3


# ---------------------------------------------------------------- loops

def test_while_loop() -> None:
    def f(x: Any, limit: Any) -> Any:
        return tn.while_loop(lambda c: c["x"] < limit, lambda c: {"x": c["x"] * 2, "n": c["n"] + 1}, {"x": x, "n": 0})
    out = both(f, tn.tensor(3.0), tn.tensor(100.0))
    assert out["x"].item() == 192 and out["n"].item() == 6
    assert both(f, tn.tensor(3.0), tn.tensor(1.0))["n"].item() == 0


def test_a_loop_stacks_what_its_gradient_cannot_compute_again_in_a_few_operations() -> None:
    def total(x: Any, w: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            h = tn.tanh(tn.sigmoid(x) * (h @ w))
            return h, h
        return tn.scan(turn, tn.zeros((2, 3)), x)[1].sum()

    x, w = tn.ones(5, 2, 3), tn.ones(3, 3)
    graph = tn.jit(tn.grad(total, argnums=(0, 1))).capture(x, w).graph
    forward = [node for node in graph.nodes if node.op.name == "scan"][-2]
    stacked = forward.attrs["body"].results[1:]
    made_by = sorted(r.node.op.name if r.node else "state" for r in stacked)
    assert made_by == ["matmul", "sigmoid", "state", "subtract", "tanh"]       # not s * (1 - s) beside s


def test_what_a_carried_value_lies_in_is_not_written_while_it_is_of_use() -> None:
    """It may be a row of a stacked result, or an argument; sin(h) is stored for the product, but not there."""
    def f(h: Any, w: Any, x: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            h = tn.sin(h) @ w + x
            return h, h
        return tn.scan(turn, h, x)

    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype(np.float32) for s in ((40, 64), (64, 64), (6, 40, 64))]
    arrays[1] *= 0.02
    before = arrays[0].copy()
    inputs = [tn.asarray(a) for a in arrays]
    for got, wanted in zip(tn.jit(f)(*inputs), f(*inputs), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(arrays[0], before)


STATES: dict[str, Callable[..., Any]] = {       # of h, c and what h becomes: (what is carried, what is stacked)
    "the last": lambda h, c, new: ((new, c), h),
    "the last and the next": lambda h, c, new: ((new, c + new), (h, new, h, c)),
    "of one that becomes another": lambda h, c, new: ((new, h), (h, c)),
    "of two that become one": lambda h, c, new: ((new, new), (h, c, new)),
    "of two that change places": lambda h, c, new: ((c, new), (h, c, new)),
    "with what is made of it": lambda h, c, new: ((new, c - h), (h, c, h * 2, h + c)),
}


@pytest.mark.parametrize("turn", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_states_that_are_stacked(turn: Callable[..., Any], reverse: bool, length: int) -> None:
    def f(h: Any, c: Any, w: Any, x: Any) -> Any:
        return tn.scan(lambda state, x: turn(*state, tn.sin(state[0]) @ w + x), (h, c), x, reverse=reverse)

    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype(np.float32) for s in ((40, 64), (40, 64), (64, 64), (length, 40, 64))]
    arrays[2] *= 0.02
    before = [a.copy() for a in arrays]
    inputs = [tn.asarray(a) for a in arrays]
    for _ in range(2):                          # the second time memory holds the results of the first
        got, wanted = tn.jit(f)(*inputs), f(*inputs)
        for x, y in zip(numbers(got), numbers(wanted), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_a_state_that_is_stacked_is_written_to_its_row() -> None:
    """Behind the state that is stacked too; the sum of the rows reads both arrays, which are one."""
    def f(h: Any, w: Any, x: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            new = tn.sin(h) @ w + x
            return new, (h, new)
        old, new = tn.scan(turn, h, x)[1]
        return (old * new).sum(axis=0)

    arrays = [np.full(s, 0.01, np.float32) for s in ((40, 64), (64, 64), (6, 40, 64))]
    inputs = [tn.asarray(a) for a in arrays]
    jitted = tn.jit(f)
    same(jitted(*inputs), f(*inputs), 1e-4)
    labels = jitted.capture(*inputs).program.plan.labels
    loop = labels[labels.index("jump while") - 4:labels.index("jump while")]
    assert "copy" not in loop and labels.count("copy") == 1, labels


def test_while_loop_gradients() -> None:
    def newton(a: Any) -> Any:
        return tn.while_loop(lambda x: tn.abs(x * x - a) > 1e-3, lambda x: (x + a / x) * 0.5, a)
    check_gradients(newton, 2.0)
    check_gradients(lambda x, w: tn.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, tn.sin(c[1] * w)), (0, x))[1].sum(),
                    [0.3, 0.7], [1.3, -0.4])


def test_scan_and_its_gradients() -> None:
    rng = np.random.default_rng(1)

    def rnn(h: Any, xs: Any, w: Any) -> Any:
        last, ys = tn.scan(lambda h, x: (tn.tanh(w @ h + x), (h * 2, x.sum())), h, xs)
        return last.sum() + (ys[0] * ys[0]).sum() + ys[1].sum()
    arrays = rng.normal(size=2), rng.normal(size=(3, 2)), rng.normal(size=(2, 2))
    both(rnn, *map(tn.tensor, arrays))
    check_gradients(rnn, *arrays)


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_any_length(length: int, reverse: bool) -> None:
    xs = tn.tensor(np.arange(length * 2, dtype=np.float32).reshape(length, 2))
    out = both(lambda xs: tn.scan(lambda c, x: (c * 0.5 + x, {"y": c - x, "k": None}), tn.ones(2), xs, reverse=reverse), xs)
    assert out[1]["y"].shape == (length, 2) and out[1]["k"] is None


def test_scan_without_sequences() -> None:
    assert both(lambda x: tn.scan(lambda c, _: (c + c, c), x, length=4), tn.tensor(1.0))[0].item() == 16


def test_fori_loop_and_map() -> None:
    assert both(lambda x: tn.fori_loop(2, 5, lambda i, v: v * i, x), tn.tensor(1)).item() == 24
    assert both(lambda x, n: tn.fori_loop(0, n, lambda i, v: v + i, x), tn.tensor(0), tn.tensor(5)).item() == 10
    assert both(lambda x: tn.fori_loop(5, 2, lambda i, v: v + 1, x), tn.tensor(7)).item() == 7
    np.testing.assert_array_equal(both(lambda x: tn.map(lambda a: a @ a, x), tn.ones((3, 2, 2))), np.full((3, 2, 2), 2))


def test_a_loop_assigns_and_reads_tensors_from_outside() -> None:
    total = tn.zeros(2)

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            total.assign(total + c)
            return c + 1
        return tn.while_loop(lambda c: (c + total).sum() < 30, body, x)
    jitted = tn.jit(f, fullgraph=True)
    found = []
    for function in (f, jitted):
        total.assign(tn.zeros(2))
        found.append((function(tn.tensor(1.0)).item(), total.tolist()))
    assert found[0] == found[1]


def test_random_numbers_in_a_body_are_those_of_eager() -> None:
    def f(x: Any) -> Any:
        walked = tn.fori_loop(0, 3, lambda i, c: c + tn.rand(2), x)
        return tn.cond(walked.sum() > 0, lambda: walked + tn.randn(2), lambda: walked), tn.rand(2)
    jitted, found = tn.jit(f, fullgraph=True), []
    for function in (f, jitted):
        tn.manual_seed(3)
        found.append([function(tn.zeros(2)) for _ in range(2)])
    same(*found, tolerance=1e-6)


def test_nested_to_depth_three() -> None:
    def f(x: Any, w: Any) -> Any:
        def outer(c: Any, row: Any) -> Any:
            def inner(s: Any) -> Any:
                return s[0] + 1, tn.cond(s[1].sum() > 0, lambda: tn.sin(s[1]) * w, lambda: s[1] * s[1] + row)
            return tn.while_loop(lambda s: s[0] < 3, inner, (0, c + row))[1], c.sum()
        last, sums = tn.scan(outer, x, tn.stack([w, x, w * x]))
        return (last * last).sum() + (sums * sums).sum()
    arrays = np.array([0.4, -0.6]), np.array([0.8, 1.1])
    both(f, *map(tn.tensor, arrays))
    check_gradients(f, *arrays)


@pytest.mark.parametrize(("body", "problem"), [
    (lambda c: c[:1], r"carry has the shape|body returns f32\[1\]"), (lambda c: c.astype("f64"), "f64"),
    (lambda c: (c, c), "form")])
def test_what_a_loop_carries_keeps_its_type(body: Any, problem: str) -> None:
    def f(x: Any) -> Any:
        return tn.while_loop(lambda c: c.sum() < 10, body, x)
    for function in (f, tn.jit(f)):
        with pytest.raises((ShapeError, DTypeError, ArgumentError), match=problem):
            function(tn.ones(2))


def test_a_weak_start_takes_the_type_of_the_body() -> None:
    both(lambda x: tn.while_loop(lambda c: c < 5, lambda c: c + x, 0), tn.tensor(1.5, dtype="f64"))
    both(lambda xs: tn.scan(lambda c, x: (c + x, c), 0, xs), tn.tensor([0.5, 1.5]))


def test_python_effects_in_a_body_run_as_often_as_eagerly() -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            seen.append(1)
            return c + 1
        return tn.while_loop(lambda c: c < 3, body, x)
    assert tn.jit(f)(tn.tensor(0)).item() == 3 and len(seen) == 3


def test_symbolic_sizes() -> None:
    jitted = tn.jit(lambda xs: tn.scan(lambda c, x: (c + x.sum(), x * c), 0.0, xs), fullgraph=True)
    for rows, columns in ((3, 2), (4, 2), (7, 5), (1, 2), (0, 2)):
        xs = tn.tensor(np.random.default_rng(0).normal(size=(rows, columns)))
        same(jitted(xs), jitted.function(xs), 1e-12)


def test_the_interpreter_runs_a_gradient_with_the_stack() -> None:
    jitted = tn.jit(tn.grad(lambda x: tn.while_loop(lambda c: c < 10, lambda c: c * c, x)), fullgraph=True)
    graph = jitted.graph(tn.tensor(1.5))
    assert interpret(graph, [np.float32(1.5)])[0] == pytest.approx(8 * 1.5 ** 7, rel=1e-5)


# ---------------------------------------------------------------- what cuts gradients off

def test_the_interpreter_runs_a_gradient_of_symbolic_sizes() -> None:
    slope = tn.jit(tn.grad(lambda x: tn.while_loop(lambda a: a.sum() > 1, lambda a: a * 0.5, x).sum()))
    for values in ([1.0, 2.0], [3.0, 4.0, 5.0]):        # the second makes the size a symbol
        found = slope(tn.tensor(values))
    [expected] = interpret(slope.graph(tn.tensor(values)), [np.float32(values)])
    np.testing.assert_array_equal(found.numpy(), expected)


def test_a_graph_keeps_what_detach_and_no_grad_cut_off() -> None:
    def detached(x: Any) -> Any:
        return x * x.detach()

    def silent(x: Any) -> Any:
        with tn.no_grad():
            y = x * x
        return x * y

    def in_branch(x: Any) -> Any:
        y = x.detach()
        return tn.cond(x > 0, lambda: x * y, lambda: x)

    def in_loop(x: Any) -> Any:
        return tn.fori_loop(0, 2, lambda i, c: c.detach() * x, x)
    for f in (detached, silent, in_branch, in_loop):
        expected = tn.grad(f)(tn.tensor(3.0)).item()
        for gradient in (tn.grad(tn.jit(f, fullgraph=True)), tn.jit(tn.grad(f), fullgraph=True)):
            assert gradient(tn.tensor(3.0)).item() == expected


def test_a_body_may_change_its_arguments_in_place() -> None:
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            c += 1
            c[0] = 5
            return c
        return tn.while_loop(lambda c: c.sum() < 20, body, x), tn.cond(x.sum() > 0, lambda: body(x * 1), lambda: x)
    both(f, tn.zeros(3))


# ---------------------------------------------------------------- batches, tangents

def example_by_example(f: Callable[..., Any], xs: Any, *shared: Any) -> Any:
    rows = [flatten(f(x, *shared)) for x in xs]
    return rows[0][1].build(tn.stack(list(column)) for column in zip(*(leaves for leaves, _ in rows), strict=True))


def check_vmap(f: Callable[..., Any], xs: Any, *shared: Any) -> None:
    """A batch is what the examples are, eagerly and jitted; so is the gradient of every example."""
    axes, which = (0, *(None for _ in shared)), tuple(range(1 + len(shared)))

    def scalar(*args: Any) -> Any:
        return sum((leaf * leaf).sum() for leaf in flatten(f(*args))[0] if leaf.dtype.is_floating)
    for function in (f, tn.grad(scalar, argnums=which)):
        expected = example_by_example(function, xs, *shared)
        same(tn.vmap(function, axes)(xs, *shared), expected)
        same(tn.jit(tn.vmap(function, axes), fullgraph=True)(xs, *shared), expected)
        same(tn.vmap(tn.jit(function), axes)(xs, *shared), expected)
    total = sum(g.sum() for g in flatten(expected)[0])
    summed = tn.grad(lambda *a: sum((y * y).sum() for y in flatten(tn.vmap(f, axes)(*a))[0]), argnums=which)(xs, *shared)
    np.testing.assert_allclose(sum(g.sum() for g in summed).item(), total.item(), rtol=1e-9)


XS, W = tn.tensor([4.0, -1.0, 0.0, 9.0], dtype="f64"), tn.tensor(1.7, dtype="f64")


@pytest.mark.parametrize("f", [
    lambda x, w: tn.cond(x > 0, lambda: tn.sqrt(x) * w, lambda: x * x * w),
    lambda x, w: tn.cond(w > 0, lambda: (x * w, x), lambda: (x, x)),
    lambda x, w: tn.switch(x.astype("i64"), [lambda: x * w, lambda: w, lambda: tn.log(x) * w]),
    lambda x, w: tn.while_loop(lambda c: c < 50, lambda c: c * c * w + 1, x),
    lambda x, w: tn.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, tn.sin(c[1]) * w), (0, x))[1],
    lambda x, w: tn.scan(lambda c, a: (c * a + w, c * x), w, tn.arange(3).astype("f64")),
    lambda x, w: tn.scan(lambda c, a: (tn.cond(c > a, lambda: c - a * w, lambda: c + x), a), x, w * tn.ones(4, dtype="f64")),
    lambda x, w: tn.map(lambda a: tn.fori_loop(0, a, lambda i, c: c * w + x, x), tn.arange(3)),
], ids=["cond", "shared_cond", "switch", "while", "shared_while", "scan", "cond_in_scan", "for_in_map"])
def test_a_batch_is_what_its_examples_are(f: Any) -> None:
    check_vmap(f, XS, W)


def test_batches_of_batches() -> None:
    def f(x: Any, y: Any) -> Any:
        return tn.while_loop(lambda c: c < 20, lambda c: tn.cond(c > y, lambda: c * 2 + 1, lambda: c + y), x)
    xs, ys = tn.tensor([1.0, 3.0, 8.0]), tn.tensor([2.0, 5.0])
    expected = tn.stack([tn.stack([f(x, y) for y in ys]) for x in xs])
    twice = tn.vmap(tn.vmap(f, (None, 0)), (0, None))
    same(twice(xs, ys), expected)
    same(tn.jit(twice, fullgraph=True)(xs, ys), expected)


def test_an_index_out_of_range_is_one_only_where_the_branch_is_taken() -> None:
    table = tn.tensor([1.0, 2.0, 3.0])

    def f(i: Any) -> Any:
        return tn.cond(i < 3, lambda: table[i], lambda: table[0] * 0)
    at = tn.tensor([0, 7, 2])
    for function in (tn.vmap(f), tn.jit(tn.vmap(f), fullgraph=True), tn.vmap(tn.jit(f))):
        assert function(at).tolist() == [1.0, 0.0, 3.0]
    with pytest.raises(IndexError):
        tn.vmap(lambda i: tn.cond(i < 9, lambda: table[i], lambda: table[0]))(at)


@pytest.mark.parametrize("f", [
    lambda x: tn.cond(x.sum() > 0, lambda: tn.sin(x), lambda: x * x),
    lambda x: tn.while_loop(lambda c: (c * c).sum() < 30, lambda c: c * 1.5 + tn.sin(x), x),
    lambda x: tn.scan(lambda c, a: (tn.tanh(c * a), c * x), x, x)[1]])
def test_forward_mode_is_the_difference_and_agrees_with_reverse(f: Any) -> None:
    x, t = tn.tensor([0.7, 1.3], dtype="f64"), tn.tensor([0.3, -1.1], dtype="f64")
    expected = (f(x + t * 1e-6) - f(x - t * 1e-6)) / 2e-6
    same(tn.jvp(f, (x,), (t,))[1], expected, 1e-7)
    same(tn.jit(lambda x, t: tn.jvp(f, (x,), (t,))[1], fullgraph=True)(x, t), expected, 1e-7)
    same(tn.jvp(tn.jit(f), (x,), (t,))[1], expected, 1e-7)
    jacobian = tn.jit(tn.jacfwd(f), fullgraph=True)(x)
    same(tn.jit(tn.jacrev(f), fullgraph=True)(x), jacobian)
    hessian = tn.hessian(lambda x: (f(x) ** 3).sum())
    same(tn.jit(hessian, fullgraph=True)(x), hessian(x))


# ---------------------------------------------------------------- what a gradient keeps

def nodes_of(graph: Any) -> Any:
    for node in graph.nodes:
        yield node
        for body in node.graphs:
            yield from nodes_of(body)


def pushed_sizes(function: Any, *args: Any) -> list[int]:
    """The elements that each push of the optimised program keeps."""
    graph = optimize(tn.jit(function, fullgraph=True).graph(*args), backend="cpu")
    return [sum(int(x.size) for x in node.inputs[1:] if isinstance(x, Value))
            for node in nodes_of(graph) if node.op.name == "push"]


def test_requirement_42_the_gradient_runs_as_often_as_the_loop() -> None:
    """The reverse loop takes what the forward one pushed, until nothing is left; the forward one runs once."""
    def f(x: Any, n: Any) -> Any:
        return tn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, tn.sin(c[1])), (0, x))[1]
    both_ways = tn.jit(tn.value_and_grad(f), fullgraph=True)
    for n in (0, 1, 7):
        x, slope = tn.tensor(0.7, dtype="f64"), 1.0
        for _ in range(n):
            slope, x = slope * np.cos(x.item()), tn.sin(x)
        value, gradient = both_ways(tn.tensor(0.7, dtype="f64"), tn.tensor(n))
        assert value.item() == pytest.approx(x.item()) and gradient.item() == pytest.approx(slope)
    graph = optimize(both_ways.graph(tn.tensor(0.7, dtype="f64"), tn.tensor(3)), backend="cpu")
    assert [node.op.name for node in nodes_of(graph)].count("while_loop") == 2


@pytest.mark.parametrize("wrap", [lambda f: tn.jit(tn.grad(f), fullgraph=True),
                                  lambda f: tn.grad(tn.jit(f, fullgraph=True))], ids=["jit(grad)", "grad(jit)"])
def test_a_gradient_inside_a_loop_has_a_gradient(wrap: Any) -> None:
    """Descent by gradients, differentiated by where it began: who computes the inner gradient is not its last reader."""
    def turn(x: Any) -> Any:
        return x - 0.1 * tn.grad(lambda z: (z ** 3).sum())(x)

    def by_function(x: Any) -> Any:
        return tn.while_loop(lambda s: s[1] < 3, lambda s: (turn(s[0]), s[1] + 1), (x, 0))[0].sum()

    def by_statement(x: Any) -> Any:
        while x.sum() > 1:
            x = turn(x)
        return x.sum()
    x = tn.tensor([0.5, 1.0], dtype="f64")
    for f in (by_function, by_statement):
        same(wrap(f)(x), tn.grad(f)(x))


def test_checkpoint_bounds_what_a_loop_keeps() -> None:
    def step(c: Any) -> Any:
        return tn.tanh(tn.sin(tn.exp(c * 0.3)) * tn.cos(c)) + 0.2

    def loop(body: Any) -> Any:
        return lambda x: tn.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, body(c[1])), (0, x))[1].sum()

    def segments(x: Any) -> Any:
        @tn.checkpoint
        def some(c: Any) -> Any:
            start = c[0]
            return tn.while_loop(lambda d: (d[0] < 9) & (d[0] < start + 3), lambda d: (d[0] + 1, step(d[1])), c)
        return tn.while_loop(lambda c: c[0] < 9, some, (0, x))[1].sum()
    x = tn.tensor([0.1, 0.5, -0.3, 0.9], dtype="f64")
    expected = tn.grad(loop(step))(x)
    for f in (loop(step), loop(tn.checkpoint(step)), segments):
        for gradient in (tn.grad(f), tn.jit(tn.grad(f), fullgraph=True), tn.grad(tn.jit(f, fullgraph=True))):
            same(gradient(x), expected)
    assert pushed_sizes(tn.grad(loop(tn.checkpoint(step))), x) == [4] < pushed_sizes(tn.grad(loop(step)), x)
    outer, inner = pushed_sizes(tn.grad(segments), x)       # every third state; and what three steps need
    assert outer == 5 and inner > 4


def test_a_list_made_by_the_function_and_changed_in_a_body() -> None:
    class Log:
        items: list[int]

    log = Log()

    def f(x: Any) -> Any:
        log.items = []

        def body(c: Any) -> Any:
            log.items.append(1)
            return c + 1
        first = tn.while_loop(lambda c: c < 2, body, x)
        return tn.while_loop(lambda c: c < 5, body, first)
    for _ in range(2):
        assert tn.jit(f)(tn.tensor(0)).item() == 5 and log.items == [1] * 5


def test_requirement_24_a_loop_is_no_cycle_and_a_cycle_is_refused() -> None:
    """What a loop carries is a value of the body's; a graph that reads its own output is no graph."""
    with pytest.raises(GraphError):
        verify(parse_graph("def f(x: f32):\n    v0: f32 = add(x, v1)\n    v1: f32 = sin(v0)\n    return v1"))
    graph = tn.jit(lambda xs: tn.scan(lambda c, x: (c + x, c), 0.0, xs)).graph(tn.ones(3))
    assert len({id(x) for node in nodes_of(optimize(graph, backend="cpu")) for x in node.outputs}) == \
        sum(len(node.outputs) for node in nodes_of(optimize(graph, backend="cpu")))


# ---------------------------------------------------------------- JAX

def test_jax_says_the_same() -> None:
    jax = pytest.importorskip("jax")
    lax, jnp = jax.lax, jax.numpy

    def in_tenon(x: Any, w: Any) -> Any:
        h, ys = tn.scan(lambda h, a: (tn.tanh(w @ h + a), (h * a).sum()), x, tn.arange(6).reshape(3, 2).astype("f32"))
        h = tn.while_loop(lambda h: (h * h).sum() < 9, lambda h: h * 1.5 + 0.1, h)
        h = tn.fori_loop(1, 4, lambda i, h: h / i, h)
        return tn.switch(h.sum().astype("i64"), [lambda: h.sum(), lambda: (h * ys.sum()).sum()]) + tn.map(tn.sin, ys).sum()

    def in_jax(x: Any, w: Any) -> Any:
        h, ys = lax.scan(lambda h, a: (jnp.tanh(w @ h + a), (h * a).sum()), x, jnp.arange(6.0).reshape(3, 2))
        for _ in range(20):         # a while_loop of JAX has no reverse
            h = jnp.where((h * h).sum() < 9, h * 1.5 + 0.1, h)
        h = lax.fori_loop(1, 4, lambda i, h: h / i, h)
        return lax.switch(h.sum().astype(int), [lambda: h.sum(), lambda: (h * ys.sum()).sum()]) + lax.map(jnp.sin, ys).sum()
    x, w = np.array([0.3, -0.2], np.float32), np.array([[0.5, -1.0], [0.2, 0.8]], np.float32)
    expected = jax.value_and_grad(in_jax, argnums=(0, 1))(x, w)
    for both_ways in (tn.value_and_grad(in_tenon, argnums=(0, 1)),
                      tn.jit(tn.value_and_grad(in_tenon, argnums=(0, 1)), fullgraph=True)):
        value, gradients = both_ways(tn.tensor(x), tn.tensor(w))
        np.testing.assert_allclose(value.numpy(), expected[0], rtol=1e-5)
        for got, wanted in zip(gradients, expected[1], strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4)


# ---------------------------------------------------------------- state

@pytest.mark.parametrize("optimizer", [lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p, lr=0.01)],
                         ids=["sgd", "adam"])
def test_a_training_loop_is_one_node(optimizer: Any) -> None:
    """Gradients, updates, running statistics and random numbers in the body of a loop."""
    found = []
    for jitted in (False, True):
        tn.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        opt, x, y = optimizer(net.parameters()), tn.randn(16, 4), tn.randn(16, 1)

        def train(net: Any = net, opt: Any = opt, x: Any = x, y: Any = y) -> Any:
            def body(i: Any, total: Any) -> Any:
                loss = ((net(x) - y) ** 2).mean()
                loss.backward()
                opt.step()
                opt.zero_grad()
                return total + loss.detach()
            return tn.fori_loop(0, 5, body, 0.0)
        run = tn.jit(train, fullgraph=True) if jitted else train
        totals = [run().item() for _ in range(2)]
        assert all(p.is_leaf and p.requires_grad for p in net.parameters())
        found.append([*totals, *(value.numpy() for value in net.state_dict().values())])
    for eager, captured in zip(*found, strict=True):
        np.testing.assert_allclose(captured, eager, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- effects

NOTED: list[tuple[str, float]] = []


def note(word: str) -> Any:
    def ref(x: np.ndarray) -> np.ndarray:
        NOTED.append((word, float(x)))
        return np.zeros(())
    return define(f"control_test_{word}", public=False, type=lambda x: TOKEN, ref=ref, effect=True)


ENTER, LEAVE = note("enter"), note("leave")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_effects_in_bodies_keep_their_order_and_their_number(backend: str) -> None:
    """In a gradient too, which computes bodies again."""
    graph = parse_graph("""
def f(x: f64, ys: f64[2]):
    v0: token = control_test_leave(x)
    def turn(x: f64, y: f64):
        v0: token = control_test_enter(x)
        v1: bool = greater(x, 1.0)
        def yes(x: f64, y: f64):
            v0: token = control_test_leave(x)
            v1: f64 = multiply(x, y)
            return v1
        def no(x: f64, y: f64):
            v0: f64 = add(x, y)
            return v0
        v2: f64 = cond(v1, x, y, true=yes, false=no)
        return v2
    v1: f64 = scan(x, ys, constants=0, carried=1, length=2, body=turn, reverse=False)
    v2: token = control_test_leave(v1)
    return v1
""")
    expected = [("leave", 0.5), ("enter", 0.5), ("enter", 2.5), ("leave", 2.5), ("leave", 7.5)]
    arrays = [np.array(0.5), np.array([2.0, 3.0])]
    for program in (graph, gradient_graph(graph)):
        NOTED.clear()
        results = compile(program, backend).run(arrays)
        assert results[0] == 7.5 and expected == NOTED
    np.testing.assert_allclose(results[1], 3.0)


# ---------------------------------------------------------------- with `if` and `while` of Python

def test_python_control_flow_in_the_functions_is_captured_too() -> None:
    def scanned(xs: Any, t: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            if x > t:
                c = c + x
            else:
                c = c * 0.5
            return c, c
        return tn.scan(body, 0.0, xs)

    def nested(xs: Any, t: Any) -> Any:
        s = t * 0
        while s < 10:
            s = s + tn.cond(s > 3, lambda a: a * 0.5, lambda a: tn.fori_loop(0, 2, lambda i, b: b + i + 1, a * 0), s)
        return s

    def counting(xs: Any, t: Any) -> Any:
        def body(c: Any) -> Any:
            n = 0
            while n * c < 4:
                n = n + 1
            return c + n
        return tn.while_loop(lambda c: c < 20, body, t)
    for f in (scanned, nested, counting):
        both(f, tn.arange(5).astype("f4"), tn.tensor(2.0))


def test_two_switches_on_one_index_with_other_numbers_of_branches():
    def f(i, x):
        return tn.switch(i, [tn.sin, tn.cos], x) + tn.switch(i, [tn.exp, tn.sin, tn.cos], x)
    x = tn.tensor([0.5, 1.0])
    for i in (0, 1, 2, 5):
        np.testing.assert_allclose(tn.jit(f)(tn.tensor(i), x).numpy(), f(tn.tensor(i), x).numpy(), rtol=1e-6)


def detaching_while(x: Any) -> Any:
    while x.sum() < 9:
        x = x.detach() * 2
    return x


def detaching_arm(x: Any) -> Any:
    while x.sum() < 9:
        x = x.detach() * 2 if x.sum() < 5 else x * 2
    return x * x


def detaching_swap(x: Any) -> Any:
    y = x * 1
    while y.sum() < 9:
        x, y = y.detach() * 2, x * 2
    return x * y


def detaching_in_place(x: Any) -> Any:
    y = x * 1
    while y.sum() < 9:
        y *= 0
        y += x.detach() * 5
    return y


@pytest.mark.parametrize("f", [
    lambda x: tn.cond(x.sum() > 0, lambda y: y.detach(), lambda y: y * y, x),
    lambda x: sum(tn.cond(x.sum() > 0, lambda y: (y.detach(), y * 2), lambda y: (y * 1, y * y), x)),
    lambda x: tn.switch((x.sum() > 0).astype("int64"), [lambda y: y * y, lambda y: y.detach() * 3], x),
    lambda x: tn.vmap(lambda a: tn.cond(a > 0, lambda y: y.detach(), lambda y: y * y, a))(x),
    lambda x: tn.fori_loop(0, 2, lambda k, y: y.detach() * 2, x),
    lambda x: tn.while_loop(lambda y: y.sum() < 9, lambda y: y.detach() * 2, x),
    lambda x: tn.scan(lambda c, r: (c.detach(), r.detach() * 2), x, x)[1],
    detaching_while, detaching_arm, detaching_swap, detaching_in_place,
], ids=["cond", "two_results", "switch", "vmap", "fori", "while_loop", "scan", "while", "arm", "swap", "in_place"])
def test_what_a_body_detaches_passes_no_gradient_on(f: Any) -> None:
    """A detached parameter is the same edge of the graph as the parameter."""
    slope = tn.grad(lambda x: (f(x) * 3).sum() + x.sum())
    x = tn.tensor([1.0, 2.0])
    np.testing.assert_array_equal(tn.jit(slope)(x).numpy(), slope(x).numpy())


def test_a_branch_that_raises_and_is_not_taken_is_no_mistake():
    @tn.jit
    def f(x):
        return tn.cond((x > 0).any(), lambda a: a - a.max(), lambda a: a * 2, x)
    assert f(tn.zeros(0)).shape == (0,)
    (record,) = f.records.values()
    assert "the true branch of tn.cond raises ShapeError" in record.eager.what and not record.eager.bug
    assert f(tn.tensor([1.0, 3.0])).tolist() == [-2.0, 0.0]


def test_what_a_branch_assigns_requires_no_gradient_for_the_results_beside_it():
    weight = tn.nn.Parameter([1.0, 2.0])

    def f(x):
        count = tn.zeros(2)

        def taken():
            count.assign(count + x)
            return (weight * x).sum()
        return tn.cond(x.sum() > 0, taken, lambda: weight.sum()), count
    jitted = tn.jit(f, fullgraph=True)
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        (y, count), (z, expected) = jitted(tn.tensor(values)), f(tn.tensor(values))
        assert (y.requires_grad, count.requires_grad, count.tolist()) == (z.requires_grad, False, expected.tolist())


UNUSED = {
    "scan": lambda x: tn.scan(lambda a, r: (a * 0.5 + r, tn.sqrt(r) * a), tn.tensor(1.0), x)[0],
    "cond": lambda x: tn.cond(x.sum() > 0, lambda x: (x * 2, tn.sqrt(x)), lambda x: (x, x), x)[0].sum(),
    "switch": lambda x: tn.switch(tn.tensor(1), [lambda x: (x, x), lambda x: (x * 2, tn.sqrt(x))], x)[0].sum(),
    "checkpoint": lambda x: tn.checkpoint(lambda x: ((x * 2).sum(), tn.sqrt(x)))(x)[0],
    "jit": lambda x: tn.jit(lambda x: ((x * 2).sum(), tn.sqrt(x)))(x)[0],
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_result_that_nobody_uses_has_no_gradient(name):
    """The square root at 0 is infinitely steep: a gradient of zero times that would be NaN."""
    gradient = tn.grad(UNUSED[name])
    x = tn.tensor([0.0, 1.0, 0.0, 4.0])
    want = [0.125, 0.25, 0.5, 1.0] if name == "scan" else [2.0] * 4
    for found in (gradient(x), tn.jit(gradient)(x), tn.jit(gradient)(x)):
        assert found.tolist() == want


def test_unused_results_of_a_scan_beside_a_counter():
    """What is carried and has no gradient stays, of what is stacked only what has one."""
    def f(x):
        (a, _), (_, ys) = tn.scan(lambda c, r: ((c[0] * r, c[1] + 1), (tn.sqrt(r), c[0] + c[1])), (x[0], 0), x)
        return a + ys.sum()
    x = tn.tensor([0.0, 2.0, 3.0])
    want = tn.grad(lambda x: x[0] * x[0] * x[1] * x[2] + x[0] + x[0] * x[0] + x[0] * x[0] * x[1])(x).tolist()
    assert tn.jit(tn.grad(f))(x).tolist() == tn.grad(f)(x).tolist() == want
