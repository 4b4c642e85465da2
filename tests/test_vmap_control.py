"""Python's control flow under `tn.vmap`: a batch is what its examples are, and so are its gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.capture.pytree import flatten
from tenon.errors import CaptureError, OutOfRange
from tenon.transforms import one_example

BATCH = np.random.default_rng(0).standard_normal((5, 3))
SMALL = [[1.0, 2.0], [-1.0, -2.0], [0.3, 0.1]]


def both_arms(x: Any) -> Any:
    if x[0] > 0:
        y = tn.exp(x) if x[1] > 0 else tn.sin(x)
        if x[2] > 0:
            y = y * x[2]
    else:
        y = tn.cos(x)
    return y


def early_return(x: Any) -> Any:
    for i in range(2):
        for j in range(3):
            if x[i] + x[j] > 1.0:
                return x[i] * x[j]
            if x[j] < -0.9:
                break
    return x.sum()


def newton(x: Any) -> Any:
    root, turns = x.abs().sum() + 1, 0
    while tn.abs(root * root - 2) > 1e-9:
        root = (root + 2 / root) / 2
        turns += 1
    return root * x, turns


def no_turn_for_some(x: Any) -> Any:
    total, rest = x * 0, x.sum()
    while rest > 0.3:
        total, rest = total + rest * rest, rest - 0.3
    return total


def loops_in_loops(x: Any) -> Any:
    total, i = x.sum() * 0, 0
    while i < 3:
        v = x[i]
        while v.abs() > 0.1:
            v = v / 2
            total = total + v
        i += 1
    return total


def broken_off(x: Any) -> Any:
    k = 0
    while True:
        x, k = x * 0.8, k + 1
        if x.abs().sum() < 0.3:
            break
        if k > 6:
            return x * 0
    return x + k


def skipped(x: Any) -> Any:
    total = x.sum() * 0
    for v in x:
        if v < 0:
            continue
        total = total + v * v
    else:
        total = total * 2
    return total


def conditions(x: Any) -> Any:
    if x[0] > 0 and (x[1] > 0 or not x[2] > 0):
        return x * 3
    return x * 2 if 0 < x[1] < 0.7 else x / 2


def lists_and_objects(x: Any) -> Any:
    kept, named = [x], {"w": x}
    if x.sum() > 0:
        kept.append(x * 2)
        named["w"] = named["w"] * x[0]
    else:
        kept.append(x * 3)
    return kept[0] + kept[1], named


def sorted_by_swaps(x: Any) -> Any:
    xs = list(x)
    for i in range(3):
        for j in range(2 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return tn.stack(xs)


def changed_in_place(x: Any) -> Any:
    y = x * 1
    if x[0] > 0:
        y[1] = y[1] * 5
    else:
        y += 1
    return y


def square_or_less(x: Any) -> Any:
    return 0.5 - x if x < 0.5 else x * x


def calls(x: Any) -> Any:
    act = tn.sin if x[2] > 0 else tn.cos
    return square_or_less(x[0]) + square_or_less(square_or_less(x[1])) * act(x[2])


def numbers_of_python(x: Any) -> Any:
    n, power, base = int(x.abs().sum() * 5), x[0] * 0 + 1, x[0]
    while n > 0:
        if n % 2:
            power = power * base
        base, n = base * base, n // 2
    return power * x[int(x.argmax())] + x.max().item()


def a_gradient_inside(x: Any) -> Any:
    turns, size = 0, (x * x).sum()
    while size > 0.1 and turns < 20:
        x = x - 0.2 * tn.grad(lambda z: (z ** 4).sum() if z.sum() > 0 else (z * z).sum())(x)
        size, turns = (x * x).sum(), turns + 1
    return x + turns


def functions_of_control(x: Any) -> Any:
    def body(state: Any) -> Any:
        y, k = state
        y = y - 0.5 if y.sum() > 0 else y * 0.5
        return y, k + 1
    x, _ = tn.while_loop(lambda state: state[1] < 4, body, (x, 0))
    return tn.cond(x[0] > 0, lambda z: z * 2 if z[1] > 0 else z, lambda z: -z, x)


def checkpointed(x: Any) -> Any:
    @tn.checkpoint
    def layer(z: Any) -> Any:
        if z.sum() > 0:
            return tn.sin(z)
        return z * z
    return layer(layer(x))


def a_batch_inside(x: Any) -> Any:
    y = tn.vmap(lambda v: v * x.sum() if v > 0 else v - x[0])(x)
    if y.sum() > 0:
        y = y * 2
    return y


PROGRAMS: list[Callable[..., Any]] = [
    both_arms, early_return, newton, no_turn_for_some, loops_in_loops, broken_off, skipped, conditions,
    lists_and_objects, sorted_by_swaps, changed_in_place, calls, numbers_of_python, a_gradient_inside,
    functions_of_control, checkpointed, a_batch_inside]


def loss(f: Callable[..., Any]) -> Callable[..., Any]:
    """The squares of all that has a gradient."""
    def total(x: Any) -> Any:
        return sum((y * y).sum() for y in flatten(f(x))[0] if isinstance(y, tn.Tensor) and y.dtype.kind == "f")
    return total


def arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x.numpy() if isinstance(x, tn.Tensor) else x) for x in flatten(tree)[0]]


def each(f: Callable[..., Any]) -> list[np.ndarray]:
    """A Python loop over the examples."""
    return [np.stack(column) for column in zip(*(arrays(f(x)) for x in tn.tensor(BATCH)), strict=True)]


def assert_equal(found: Any, wanted: list[np.ndarray]) -> None:
    for x, y in zip(arrays(found), wanted, strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("wrap", [lambda f: tn.vmap(f), lambda f: tn.jit(tn.vmap(f), fullgraph=True),
                                  lambda f: tn.vmap(tn.jit(f))], ids=["vmap", "jit(vmap)", "vmap(jit)"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_a_batch_is_what_its_examples_are(f: Any, wrap: Any) -> None:
    batched = wrap(f)
    for _ in range(2):
        assert_equal(batched(tn.tensor(BATCH)), each(f))


@pytest.mark.parametrize("wrap", [
    lambda f: tn.vmap(tn.grad(f)), lambda f: tn.grad(lambda x: tn.vmap(f)(x).sum()),
    lambda f: tn.vmap(lambda x: tn.vjp(f, x)[1](tn.ones((), dtype="float64"))[0]),
], ids=["vmap(grad)", "grad(vmap)", "vmap(vjp)"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_the_examples(f: Any, wrap: Any) -> None:
    assert_equal(wrap(loss(f))(tn.tensor(BATCH)), each(tn.grad(loss(f))))


@pytest.mark.parametrize("wrap", [
    lambda f: tn.jit(tn.vmap(tn.grad(f)), fullgraph=True),
    lambda f: tn.jit(tn.grad(lambda x: tn.vmap(f)(x).sum()), fullgraph=True)], ids=["jit(vmap(grad))", "jit(grad(vmap))"])
@pytest.mark.parametrize("f", [both_arms, no_turn_for_some, lists_and_objects, a_gradient_inside],
                         ids=lambda f: f.__name__)
def test_gradients_in_a_graph_are_those_of_the_examples(f: Any, wrap: Any) -> None:
    assert_equal(wrap(loss(f))(tn.tensor(BATCH)), each(tn.grad(loss(f))))


@pytest.mark.parametrize("f", [both_arms, no_turn_for_some, checkpointed], ids=lambda f: f.__name__)
def test_second_derivatives_and_tangents(f: Any) -> None:
    f, x = loss(f), tn.tensor(BATCH)
    assert_equal(tn.vmap(tn.hessian(f))(x), each(tn.hessian(f)))
    tangents = each(lambda x: tn.jvp(f, (x,), (tn.ones(3, dtype="float64"),))[1])
    assert_equal(tn.jvp(tn.vmap(f), (x,), (tn.ones((5, 3), dtype="float64"),))[1], tangents)
    assert_equal(tn.vmap(lambda x: tn.jvp(f, (x,), (tn.ones(3, dtype="float64"),))[1])(x), tangents)


def test_second_derivatives_in_a_graph() -> None:
    f = loss(square_or_less)
    found = tn.jit(tn.vmap(tn.hessian(lambda x: f(x[0]) * x[1])), fullgraph=True)(tn.tensor(BATCH))
    assert_equal(found, each(tn.hessian(lambda x: f(x[0]) * x[1])))


@pytest.mark.parametrize("wrap", [lambda f: tn.vmap(tn.grad(f)), lambda f: tn.grad(lambda x: tn.vmap(f)(x).sum())],
                         ids=["vmap(grad)", "grad(vmap)"])
def test_a_rule_of_ones_own_in_a_branch_is_kept(wrap: Any) -> None:
    @tn.custom_vjp
    def square(x: Any) -> Any:
        return x * x
    square.defvjp(lambda x: (x * x, x), lambda x, g: (3 * g * x,))

    def f(x: Any) -> Any:
        return square(x).sum() if x.sum() > 0 else x.sum()
    assert_equal(wrap(f)(tn.tensor(BATCH)), each(tn.grad(f)))


def test_batches_of_batches_choose_element_by_element() -> None:
    found = tn.vmap(tn.vmap(square_or_less), in_axes=1, out_axes=1)(tn.tensor(BATCH))
    np.testing.assert_array_equal(found.numpy(), np.where(BATCH < 0.5, 0.5 - BATCH, BATCH * BATCH))


def test_a_parameter_gets_the_gradients_of_the_arms_taken() -> None:
    w = tn.tensor([2.0, 3.0], requires_grad=True)

    def f(x: Any) -> Any:
        return (x * w).sum() if (x * w).sum() > 0 else x.sum() * w[0]
    tn.vmap(f)(tn.tensor(SMALL)).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), [1.3 - 3.0, 2.1], rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_nothing_comes_from_an_arm_that_an_example_does_not_take(wrap: Any) -> None:
    def root(x: Any) -> Any:
        return tn.sqrt(x) if x >= 0 else x * 3

    def kept(x: Any) -> Any:
        i = int(x)
        return tn.arange(3.0)[i] * x if 0 <= i < 3 else x
    x = tn.tensor([0.0, 4.0, -1.0, 0.0])
    np.testing.assert_array_equal(wrap(tn.vmap(root))(x).numpy(), [0, 2, -3, 0])
    slopes = wrap(tn.grad(lambda x: tn.vmap(root)(x).sum()))(x).numpy()
    np.testing.assert_array_equal(slopes, [np.inf, 0.25, 3, np.inf])        # no nan: inf is that of the root itself
    np.testing.assert_array_equal(wrap(tn.vmap(kept))(tn.tensor([2.0, 100.0, 1.0])).numpy(), [4, 100, 1])


def test_an_infinite_slope_stays_where_it_is_in_a_loop() -> None:
    def f(x: Any) -> Any:
        while x < 2:
            x = tn.sqrt(x) + 2
        return x
    found = tn.grad(lambda x: tn.vmap(f)(x).sum())(tn.tensor([0.0, 1.0, 5.0])).numpy()
    np.testing.assert_array_equal(found, [np.inf, 0.5, 1])


def test_a_batch_without_examples() -> None:
    def f(x: Any) -> Any:
        while x.sum() > 1:
            x = x / 2
        return x if x[0] > 0 else -x
    for run in (tn.vmap(f), tn.jit(tn.vmap(f))):
        assert run(tn.zeros(0, 2)).shape == (0, 2)


# ---------------------------------------------------------------- numbers, and what is known

def test_numbers_that_examples_decide_are_tensors() -> None:
    def f(x: Any) -> Any:
        n = 0
        for v in x:
            if v > 0.2:
                n += 1
        return n, 0.5 if n == 2 else 1.5, n > 0 and x[0] > 0
    count, half, both = tn.vmap(f)(tn.tensor(SMALL))
    assert (count.tolist(), half.tolist(), both.tolist()) == ([2, 0, 1], [0.5, 1.5, 1.5], [True, False, True])
    assert (count.dtype.name, half.dtype.name) == ("int64", "float32")
    assert tn.vmap(lambda x: x.item())(tn.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_what_all_examples_share_is_known_to_python() -> None:
    flag, size, names = tn.tensor(True), tn.tensor(2), []

    def f(x: Any) -> Any:
        if flag:
            names.append("once")
        for _ in range(int(size)):
            x = x + 1
        return x if x.sum() > 2.5 else -x
    for _ in range(2):
        np.testing.assert_allclose(tn.vmap(f)(tn.tensor(SMALL)).numpy(), [[3, 4], [-1, 0], [2.3, 2.1]], rtol=1e-6)
    assert names == ["once", "once"]


# ---------------------------------------------------------------- effects

class Counter:
    """What a function changes outside."""

    def __init__(self) -> None:
        self.calls = 0


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_python_runs_once_a_call(wrap: Any, capsys: pytest.CaptureFixture[str]) -> None:
    counter, noted = Counter(), list[int]()

    def f(x: Any) -> Any:
        print("called")
        counter.calls += 1
        noted.append(counter.calls)
        return x if x.sum() > 0 else -x
    batched = wrap(tn.vmap(f))
    for _ in range(3):
        batched(tn.tensor(SMALL))
    assert (counter.calls, noted, capsys.readouterr().out) == (3, [1, 2, 3], "called\n" * 3)


def test_a_function_that_asks_later_has_its_effects_once() -> None:
    counter = Counter()

    def f(x: Any, choose: Any) -> Any:
        counter.calls += 1
        return -x if choose and x.sum() < 0 else x
    batched = tn.vmap(f, in_axes=(0, None))
    for choose in (False, True, False, True):
        batched(tn.tensor(SMALL), choose)
    assert counter.calls == 4


def test_random_numbers_are_drawn_once_a_call() -> None:
    def f(x: Any) -> Any:
        return x * random.random() + tn.rand(2) if x.sum() > 0 else x
    random.seed(0)

    def outside_of_arms(x: Any) -> Any:
        scale, noise = random.random(), tn.rand(2)
        return x * scale + noise if x.sum() > 0 else x
    draws = random.Random(0)
    for _ in range(2):
        _ = tn.manual_seed(0)
        noise = tn.rand(2).numpy()
        _ = tn.manual_seed(0)
        found = tn.vmap(outside_of_arms)(tn.tensor(SMALL)).numpy()
        x, scale = np.array(SMALL, np.float32), draws.random()
        np.testing.assert_allclose(found, [x[0] * scale + noise, x[1], x[2] * scale + noise], rtol=1e-5)
    with pytest.raises(CaptureError, match=r"random\(\) acts outside the program"):
        tn.vmap(f)(tn.tensor(SMALL))


def prints_in_an_arm(x: Any) -> Any:
    if x.sum() > 0:
        print("positive")
    return x


def prints_in_a_loop(x: Any) -> Any:
    while x.sum() > 0:
        print("again")
        x = x - 1
    return x


COUNTER = Counter()


def counts_in_an_arm(x: Any) -> Any:
    if x.sum() > 0:
        COUNTER.calls += 1
    return x


def keeps_an_example(x: Any) -> Any:
    COUNTER.calls = x * 2 if x.sum() > 0 else x
    return x


def draws_in_an_arm(x: Any) -> Any:
    return x + tn.rand(2) if x.sum() > 0 else x


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(("f", "message", "line"), [
    (prints_in_an_arm, r"print\(\) acts outside the program", 'print("positive")'),
    (prints_in_a_loop, r"print\(\) acts outside the program", 'print("again")'),
    (counts_in_an_arm, "changes attribute 'calls' of a Counter, and what it is then differs", "if x.sum() > 0:"),
    (keeps_an_example, "changes attribute 'calls' of a Counter", "COUNTER.calls = x * 2 if x.sum() > 0 else x"),
    (draws_in_an_arm, "assigns to a tensor from outside what differs", ""),
    (lambda x: x if x.sum() > 0 else x.sum(), r"f32\[2\] or f32", ""),
    (lambda x: "up" if x.sum() > 0 else "down", "'up' or 'down'", ""),
    (lambda x: x * x.numpy(), r"numpy\(\) needs the elements of one example", "x * x.numpy()"),
])
def test_what_cannot_be_one_graph_is_an_error_at_its_line(f: Any, message: str, line: str, wrap: Any,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with pytest.raises(CaptureError, match=message) as caught:
            wrap(tn.vmap(f))(tn.tensor(SMALL))
        assert line in str(caught.value) and COUNTER.calls == 0
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- errors of the function

@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_an_example_raises_what_it_would_alone(wrap: Any) -> None:
    counter = Counter()

    def checked(x: Any) -> Any:
        counter.calls += 1
        if x.sum() < 0:
            raise ValueError("negative")
        assert x[0] < 50, "too large"
        return x * 2
    run = wrap(tn.vmap(checked))
    np.testing.assert_allclose(run(tn.tensor(SMALL).abs()).numpy(), 2 * np.abs(np.float32(SMALL)), rtol=1e-6)
    with pytest.raises(ValueError, match="negative"):
        run(tn.tensor(SMALL))
    with pytest.raises(AssertionError, match="too large"):
        run(tn.tensor(SMALL).abs() * 100)
    assert counter.calls == 3


def test_an_index_out_of_range_is_told_at_its_line() -> None:
    def f(x: Any) -> Any:
        i = int(x[0] * 5)
        return x[i]
    with pytest.raises(OutOfRange, match=r"(?s)index 5 is out of range.*return x\[i\]"):
        tn.vmap(f)(tn.tensor(SMALL))


def test_examples_that_a_graph_does_not_hold_are_called_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(one_example, "one_by_one",
                        lambda *args, plain=one_example.one_by_one: (asked.append(1), plain(*args))[1])

    def factorial(x: Any) -> Any:
        n, product = int(x), 1
        while n > 1:
            n, product = n - 1, product * n
        return x * float(product)
    found = tn.vmap(factorial)(tn.tensor([3.0, 25.0]))      # 25! needs more than 64 bits
    np.testing.assert_allclose(found.numpy(), [18, 25 * 1.5511210043330986e25], rtol=1e-6)
    assert asked == [1]


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_examples_that_choose_give_the_tape_their_gradients(jitted: bool) -> None:
    """Of tensors that require them, by `backward`; what a branch detaches gets none."""
    def chosen(x: Any) -> Any:
        return tn.cond(x.sum() > 0, lambda y: (y.detach(), y * 2), lambda y: (y * 1, y * y), x)

    def slope(x: Any) -> Any:
        first, second = tn.vmap(chosen)(x)
        assert first.requires_grad and second.requires_grad
        (first.sum() + second.sum()).backward()
        return x.grad
    x = tn.tensor(SMALL, dtype="float64").requires_grad_()
    np.testing.assert_array_equal((tn.jit(slope) if jitted else slope)(x).numpy(), [[2, 2], [-1, -3], [2, 2]])


def test_what_no_branch_gives_a_gradient_needs_none() -> None:
    x = tn.tensor(SMALL).requires_grad_()
    nested = tn.vmap(tn.vmap(lambda a: tn.switch((a > 0).astype("int64"), [lambda b: (b.detach(), b), lambda b: (b.detach() * 2, b * b)], a)))
    assert [y.requires_grad for y in nested(x)] == [False, True]


@pytest.mark.parametrize("jit", [lambda f: f, tn.jit])
def test_a_tensor_of_the_function_is_assigned_and_read_by_a_branch(jit):
    """It is gone when the function has returned, though a branch has read it, or only a cycle holds it."""
    def f(x, k):
        y = x.clone()
        y[k % 2] = 1.5
        return tn.cond((y > 1).any(), lambda a: tn.sin(a) + y, lambda a: a * 2, y)

    def g(x, k):
        y = x.clone()
        y[k % 2] = 1.5
        holder = [y]
        holder.append(holder)
        return y * 2
    x, k = tn.asarray(np.arange(6, dtype=np.float32).reshape(3, 2)), tn.tensor([0, 1, 3])
    for function in (f, g):
        want = np.stack([function(x[n], k[n]).numpy() for n in range(3)])
        np.testing.assert_allclose(jit(lambda x, k, f=function: tn.vmap(f)(x, k))(x, k).numpy(), want, rtol=1e-6)
