"""checkpoint, custom_vjp and tn.op: rules that users give, eagerly, captured, batched, and differentiated again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError, GradientError, ShapeError, TenonError
from tenon.graph.build import trace
from tenon.graph.op import OPS
from tenon.graph.text import parse_graph, print_graph
from tenon.passes.drop_barriers import drop_barriers
from tenon.pipeline import optimize
from tenon.types import TensorType, float32

X = np.array([0.5, -1.0, 2.0])


def same(found: Any, expected: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


def vector() -> tn.Tensor:
    return tn.tensor(X)


# ---------------------------------------------------------------- checkpoint

def block(x: Any) -> Any:
    return tn.exp(tn.sin(x)) * x


MODES = {
    "eager": lambda f: tn.grad(f), "jit(grad)": lambda f: tn.jit(tn.grad(f)), "grad(jit)": lambda f: tn.grad(tn.jit(f)),
    "jit(grad(jit))": lambda f: tn.jit(tn.grad(tn.jit(f))),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_changes_no_gradient(mode: str) -> None:
    plain, kept = lambda x: block(block(x)).sum(), lambda x: tn.checkpoint(block)(tn.checkpoint(block)(x)).sum()
    same(kept(vector()), plain(vector()))
    same(MODES[mode](kept)(vector()), tn.grad(plain)(vector()))
    same(tn.grad(lambda x: (MODES[mode](kept)(x) ** 2).sum())(vector()),
         tn.grad(lambda x: (tn.grad(plain)(x) ** 2).sum())(vector()))


def test_a_checkpoint_runs_again_for_the_gradient_and_keeps_one_node() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return block(x)
    x = vector().requires_grad_()
    y = tn.checkpoint(f)(x)
    assert len(runs) == 1 and y.node.op.name == "checkpoint"
    y.sum().backward()
    assert len(runs) == 2
    same(x.grad, tn.grad(lambda x: block(x).sum())(vector()))


def test_a_checkpoint_without_gradients_is_the_function() -> None:
    y = tn.checkpoint(block)(vector())
    assert not y.requires_grad
    with tn.no_grad():
        assert not tn.checkpoint(block)(vector().requires_grad_()).requires_grad


def test_a_checkpoint_reaches_tensors_that_the_function_reads_elsewhere() -> None:
    w = tn.tensor(np.array([2.0, 3.0, 4.0]), requires_grad=True)
    half = w * 0.5
    tn.checkpoint(lambda x: {"y": (x * half * w, 7)})(vector())["y"][0].sum().backward()
    same(w.grad, X * w.numpy())


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_a_checkpoint_counts_once_what_is_argument_and_read_elsewhere_too(wrap: Any) -> None:
    def squares(x: tn.Tensor) -> tn.Tensor:
        y = x * 1.0
        return tn.checkpoint(lambda v: y * v)(y) + tn.checkpoint(lambda v: x * v)(x)
    same(wrap(tn.grad(lambda x: squares(x).sum()))(vector()), 4 * X)
    same(wrap(lambda x: tn.jvp(squares, (x,), (tn.ones_like(x),))[1])(vector()), 4 * X)
    x = vector().requires_grad_()
    wrap(squares)(x).sum().backward()
    same(x.grad, 4 * X)


def test_the_second_run_of_a_checkpoint_sees_the_state_of_the_first() -> None:
    for wrap in (lambda f: f, tn.jit):
        count = tn.tensor(np.array(1.0))

        def f(x: Any, count: Any = count) -> Any:
            count.assign(count + 1)
            return (x * x * count).sum()
        gradient = wrap(tn.grad(tn.checkpoint(f)))
        same(gradient(vector()), 2 * X * 2)
        same(gradient(vector()), 2 * X * 3)
        same(count, 3)


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_the_second_run_of_a_checkpoint_draws_the_same_numbers(wrap: Any) -> None:
    f = lambda x: (tn.dropout(x, 0.5) * x).sum()
    found = []
    for function in (f, tn.checkpoint(f)):
        _ = tn.manual_seed(0)
        gradient = wrap(tn.grad(function))
        found.append(np.stack([gradient(tn.ones(8)).numpy() for _ in range(3)]))
    np.testing.assert_array_equal(*found)
    assert not (found[0][0] == found[0][1]).all()


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_checkpointed_layers_train_as_ever(wrap: Any) -> None:
    _ = tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 2))
    x = tn.randn(5, 3)

    def gradients(function: Any) -> list[np.ndarray]:
        _ = tn.manual_seed(1)
        for p in net.parameters():
            p.grad = None

        @wrap
        def step(x: Any) -> Any:
            loss = (function(x) ** 2).sum()
            loss.backward()
            return loss
        step(x)
        return [p.grad.numpy() for p in net.parameters()]
    for found, expected in zip(gradients(tn.checkpoint(net)), gradients(net), strict=True):
        same(found, expected, 1e-5)


def test_the_second_run_is_not_merged_with_the_first() -> None:
    graph = tn.jit(tn.value_and_grad(lambda x: tn.checkpoint(lambda y: tn.exp(y * y))(x * 2.0).sum())).graph(vector())
    optimized = optimize(graph, backend="reference")
    everywhere = [node.op.name for graph in (optimized, *(g for node in optimized.nodes for g in node.graphs))
                  for node in graph.nodes]
    assert everywhere.count("exp") == 2 and "barrier" not in everywhere
    plain = tn.jit(tn.value_and_grad(lambda x: tn.exp((x * 2.0) * (x * 2.0)).sum())).graph(vector())
    assert [node.op.name for node in optimize(plain, backend="reference").nodes].count("exp") == 1


def test_dropping_barriers() -> None:
    text = """def f(x: f32[2]):
    v0: tuple[f32[2], f32] = barrier(x, f32(1.0))
    v1: f32[2] = exp(v0[0])
    v2: f32[2] = multiply(v1, 2.0)
    return v2, v0[1]"""
    assert print_graph(drop_barriers(parse_graph(text))) == """def f(x: f32[2]):
    v0: f32 = full_op(f32(1.0), shape=())
    v1: f32[2] = exp(x)
    v2: f32[2] = multiply(v1, 2.0)
    return v2, v0"""


def test_checkpoints_in_batches() -> None:
    batch = tn.tensor(np.stack([X, 2 * X]))
    f = tn.checkpoint(lambda x: block(x).sum())
    expected = tn.grad(lambda x: block(x).sum())(batch)
    same(tn.vmap(tn.grad(f))(batch), expected)
    same(tn.grad(lambda x: tn.vmap(f)(x).sum())(batch), expected)


# ---------------------------------------------------------------- custom_vjp

@tn.custom_vjp
def scaled(x: Any, factor: Any) -> Any:
    return tn.sin(x) * factor


# ten times the true gradient, so that the rule is seen at work
scaled.defvjp(lambda x, factor: (tn.sin(x) * factor, (x, factor, None)),
              lambda kept, g: (10 * g * tn.cos(kept[0]) * kept[1], None))


def total(x: Any) -> Any:
    return scaled(x, 3.0).sum()


@pytest.mark.parametrize("mode", MODES)
def test_a_rule_holds_in_every_mode_and_order(mode: str) -> None:
    make = MODES[mode]
    same(make(total)(vector()), 30 * np.cos(X))
    same(tn.grad(lambda x: make(total)(x).sum())(vector()), -30 * np.sin(X))
    same(make(lambda x: tn.grad(total)(x).sum())(vector()), -30 * np.sin(X))


@pytest.mark.parametrize("mode", MODES)
def test_a_rule_holds_in_batches(mode: str) -> None:
    make = MODES[mode]
    batch = tn.tensor(np.stack([X, 2 * X]))
    same(tn.vmap(make(total))(batch), 30 * np.cos(batch.numpy()))
    same(make(lambda x: tn.vmap(total)(x).sum())(batch), 30 * np.cos(batch.numpy()))

    def shared(x: Any) -> Any:
        weights = tn.ones(4, dtype="float64")
        return tn.vmap(lambda k: scaled(x * 1.0, 3.0).sum() * k + scaled(x, k).sum())(weights).sum()
    same(make(shared)(vector()), 4 * 40 * np.cos(X))


def test_a_rule_holds_in_forward_mode_and_for_parameters() -> None:
    same(tn.jvp(total, (vector(),), (tn.ones(3, dtype="float64"),))[1], (30 * np.cos(X)).sum())
    x = vector().requires_grad_()
    tn.jit(total)(x).backward()
    same(x.grad, 30 * np.cos(X))


def test_a_batch_sums_the_gradients_of_what_examples_share() -> None:
    @tn.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return x * w
    product.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1], 2 * g * kept[0]))
    w = tn.tensor(X)
    found = tn.grad(lambda w: tn.vmap(product, in_axes=(0, None))(tn.tensor(np.stack([X, X + 1])), w).sum())(w)
    same(found, 2 * (2 * X + 1))


def test_a_result_that_is_kept_has_the_rule_too() -> None:
    @tn.custom_vjp
    def root(x: Any) -> Any:
        return tn.exp(x)
    root.defvjp(lambda x: (lambda y: (y, y))(tn.exp(x)), lambda y, g: (2 * g * y,))
    same(tn.grad(root)(0.0), 2)
    same(tn.grad(tn.grad(root))(0.0), 4)
    same(tn.grad(tn.jit(tn.grad(root)))(0.0), 4)


@pytest.mark.parametrize("mode", MODES)
def test_a_forward_may_call_the_function_itself(mode: str) -> None:
    make = MODES[mode]

    @tn.custom_vjp
    def root(x: Any) -> Any:
        return tn.exp(x)
    root.defvjp(lambda x: (lambda y: (y * 1.0, y))(root(x)), lambda y, g: (2 * g * y,))
    same(make(root)(0.0), 2)
    same(tn.grad(make(root))(0.0), 4)
    same(make(tn.grad(tn.grad(root)))(0.0), 8)
    same(make(lambda x: tn.vmap(root)(x).sum())(vector()), 2 * np.exp(X))


@pytest.mark.parametrize("mode", MODES)
def test_a_rule_that_keeps_its_result_holds_for_higher_derivatives(mode: str) -> None:
    """The derivative of the result is that of the rule, not that of what the function is made of."""
    rounded = tn.custom_vjp(tn.round)
    rounded.defvjp(lambda x: (lambda y: (y, y))(tn.round(x)), lambda y, g: (g * y,))
    make, x = MODES[mode], tn.tensor([1.2, 2.6])
    same(make(lambda x: tn.grad(lambda x: rounded(x).sum())(x).sum())(x), [1, 3])
    same(tn.grad(lambda x: make(lambda x: rounded(x).sum())(x).sum())(x), [1, 3])


@pytest.mark.parametrize("mode", MODES)
def test_rules_in_all_arms_of_a_condition(mode: str) -> None:
    doubled, tripled = tn.custom_vjp(lambda x: x * 2), tn.custom_vjp(lambda x: x * 3)
    doubled.defvjp(lambda x: (x * 2, None), lambda kept, g: (g * 100,))
    tripled.defvjp(lambda x: (x * 3, x), lambda x, g: (g * x,))

    def f(x: Any) -> Any:
        return (doubled(x) if x.sum() > 0 else tripled(x)).sum()
    for x, gradient in ((tn.tensor([1.0, 2.0]), [100, 100]), (tn.tensor([-1.0, -2.0]), [-1, -2])):
        same(MODES[mode](f)(x), gradient)


def detached_result(double: Any, product: Any, x: Any) -> Any:
    return (double(x).detach() * x).sum()


def detached_argument(double: Any, product: Any, x: Any) -> Any:
    return product(x, x.detach()).sum()


def detached_between(double: Any, product: Any, x: Any) -> Any:
    y = double(x)
    return product(y.detach(), x).sum() + y.sum()


def detached_in_arms(double: Any, product: Any, x: Any) -> Any:
    y = double(x).detach() * x if x.sum() > 0 else product(x.detach(), x)
    return y.sum()


@pytest.mark.parametrize("f", [detached_result, detached_argument, detached_between, detached_in_arms])
@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_goes_through_what_is_detached(mode: str, f: Any) -> None:
    double, product = tn.custom_vjp(lambda x: x * 2), tn.custom_vjp(lambda x, y: x * y)
    double.defvjp(lambda x: (x * 2, None), lambda kept, g: (g * 100,))
    product.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, g: (g * kept[1], g * kept[0]))
    for sign in (1.0, -1.0):
        x = vector() * sign
        same(MODES[mode](lambda x: f(double, product, x))(x), tn.grad(lambda x: f(double, product, x))(x).numpy())


@pytest.mark.parametrize("mode", MODES)
def test_a_rule_within_a_rule_holds_for_higher_derivatives(mode: str) -> None:
    tripled, grown = tn.custom_vjp(lambda x: x * 1.0), tn.custom_vjp(tn.exp)
    tripled.defvjp(lambda x: (x * 1.0, None), lambda kept, g: (g * 3,))
    grown.defvjp(lambda x: (tn.exp(x), x), lambda x, g: (g * tripled(tn.exp(x)),))
    same(MODES[mode](lambda x: tn.grad(lambda x: grown(x).sum())(x).sum())(vector()), 3 * np.exp(X))
    same(tn.grad(lambda x: MODES[mode](lambda x: grown(x).sum())(x).sum())(vector()), 3 * np.exp(X))


def test_nests_keywords_and_closures() -> None:
    shift = tn.tensor(np.array(5.0))

    @tn.custom_vjp
    def f(p: Any, y: Any) -> Any:
        return {"a": p["u"] * y + shift, "n": 3, "i": tn.tensor([1])}

    def bwd(kept: Any, g: Any) -> Any:
        u, y = kept
        assert g["n"] is None and g["i"] is None
        return {"u": g["a"] * y * shift, "k": None}, g["a"] * u
    f.defvjp(lambda p, y: (f.function(p, y), (p["u"], y)), bwd)
    for wrap in (lambda g: g, tn.jit):
        g = wrap(lambda p, y: f(y=y, p=p)["a"].sum())
        by_p, by_y = tn.grad(g, argnums=(0, 1))({"u": vector(), "k": 4}, vector())
        same(by_p["u"], 5 * X)
        same(by_y, X)
        assert by_p["k"] is None


def test_the_captured_operator_prints_and_parses() -> None:
    graph = tn.jit(total).graph(vector().requires_grad_())
    text = print_graph(graph, locations=False)
    assert "custom_call" in text and print_graph(parse_graph(text), locations=False) == text


def with_rule(fwd: Any, bwd: Any) -> Any:
    f = tn.custom_vjp(lambda x: x * 2)
    f.defvjp(fwd, bwd)
    return lambda: tn.jit(tn.grad(lambda x: f(x).sum()))(vector())


@pytest.mark.parametrize(("run", "kind", "message"), [
    (lambda: tn.custom_vjp(lambda x: x)(vector()), ArgumentError, "has no gradient rule yet"),
    (lambda: tn.custom_vjp(3), ArgumentError, "takes a function, not int"),
    (lambda: tn.custom_vjp(lambda x: x).defvjp(lambda x: x, None), ArgumentError, "bwd is not a function but NoneType"),
    (with_rule(lambda x: x, lambda k, g: (g,)), ArgumentError, "fwd must return a pair"),
    (with_rule(lambda x: (x, None), lambda k, g: g), ArgumentError, "must return a tuple of 1"),
    (with_rule(lambda x: (x, None), lambda k, g: (g, g)), ArgumentError, "a gradient for each argument, not 2"),
    (with_rule(lambda x: (x, None), lambda k, g: ((g, g),)), ArgumentError, "of the form * for argument 0, not (*, *)"),
    (with_rule(lambda x: (x, None), lambda k, g: (g.sum(),)), ShapeError,
     "returned f64 for argument 0, which is f64[3]"),
])
def test_errors_of_rules_say_what_is_wrong(run: Any, kind: type, message: str) -> None:
    with pytest.raises(kind) as caught:
        run()
    assert message in str(caught.value)


def test_a_rule_that_returns_something_else_than_the_function_is_not_captured() -> None:
    f = tn.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: ((x, x), None), lambda k, g: (g[0] + g[1],))
    with pytest.raises(ArgumentError, match=r"fwd returns \(\*, \*\), the function \*"):
        tn.jit(tn.grad(lambda x: f(x)[0].sum())).capture(vector())


# ---------------------------------------------------------------- tn.op

@pytest.fixture(autouse=True)
def forget_operators() -> Iterator[None]:
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        del OPS[name]


def make_cube() -> Any:
    return tn.op("test_cube", type=lambda x: x, ref=lambda x: x ** 3, vjp=lambda g, y, x: (3 * g * x * x,),
                 compute=lambda s, i, x: x(i) * x(i) * x(i), elementwise=True, examples=["test_cube(f32[2]) -> f32[2]"])


def test_a_users_operator_is_an_operator_like_any_other() -> None:
    cube = make_cube()
    same(cube(vector()), X ** 3)
    same(tn.jit(cube)(vector()), X ** 3)
    same(tn.grad(lambda x: tn.jit(cube)(x).sum())(vector()), 3 * X ** 2)
    same(tn.grad(lambda x: tn.grad(lambda x: cube(x).sum())(x).sum())(vector()), 6 * X)
    same(tn.vmap(tn.grad(cube))(vector()), 3 * X ** 2)
    text = print_graph(trace(cube, TensorType(float32, (2,)), name="f"), locations=False)
    assert "v0: f32[2] = test_cube(x)" in text.replace("x0", "x") and print_graph(parse_graph(text)) == text


def test_an_operator_with_attributes_and_without_a_compute_rule() -> None:
    rolled = tn.op("test_rolled", type=lambda x, *, by=1: x, ref=lambda x, by: np.roll(x, by),
                   vjp=lambda g, y, x, by: (rolled(g, by=-by),))
    same(tn.jit(lambda x: rolled(x, by=2) * 2)(vector()), np.roll(X, 2) * 2)
    same(tn.grad(lambda x: (rolled(x) * vector()).sum())(vector()), np.roll(X, -1))
    same(tn.vmap(rolled)(tn.tensor(np.stack([X, 2 * X]))), np.stack([np.roll(X, 1), np.roll(2 * X, 1)]))


@pytest.mark.parametrize(("batch", "axis"), [("front", -1), ("axis", 0), (None, 0)])
def test_an_operator_says_what_it_is_on_a_batch(batch: Any, axis: int) -> None:
    shapes = []

    def ref(x: Any, axis: int) -> Any:
        shapes.append(x.shape)
        return np.flip(x, axis)
    flipped = tn.op("test_flipped", type=lambda x, *, axis: x, ref=ref, batch=batch)
    x = np.arange(12.0).reshape(3, 2, 2)
    same(tn.vmap(lambda x: flipped(x, axis=axis))(tn.tensor(x)), np.flip(x, axis if axis < 0 else axis + 1))
    assert shapes == [(3, 2, 2)] if batch else [(2, 2)] * 3


def test_a_decorated_function_is_an_operator_that_stays_whole() -> None:
    @tn.op
    def test_swish(x: Any, *, beta: float = 1.0) -> Any:
        """x times its sigmoid."""
        return x * tn.sigmoid(beta * x)
    assert test_swish.doc == "x times its sigmoid."
    same(test_swish(vector(), beta=2.0), X / (1 + np.exp(-2 * X)))
    graph = tn.jit(test_swish).graph(vector())
    assert [node.op.name for node in graph.nodes] == ["test_swish"]
    same(tn.grad(tn.jit(lambda x: test_swish(x).sum()))(vector()),
         tn.grad(lambda x: (x * tn.sigmoid(x)).sum())(vector()))


def test_a_decorated_function_may_have_a_rule() -> None:
    @tn.op(vjp=lambda g, y, x: (g * 7,))
    def test_odd(x: Any) -> Any:
        return x * 1.0
    for make in MODES.values():
        same(make(lambda x: test_odd(x).sum())(vector()), [7, 7, 7])


def test_a_name_is_registered_anew_only_on_request() -> None:
    make_cube()
    with pytest.raises(ArgumentError, match="'test_cube' exists already") as caught:
        make_cube()
    assert "replace=True" in str(caught.value)
    four = tn.op("test_cube", type=lambda x: x, ref=lambda x: x ** 4, replace=True)
    same(four(vector()), X ** 4)
    with pytest.raises(ArgumentError, match="choose another name"):
        tn.op("add", type=lambda x: x, ref=lambda x: x, replace=True)


@pytest.mark.parametrize(("run", "message"), [
    (lambda: tn.op("no name", type=lambda x: x, ref=lambda x: x), "'no name' is no name for an operator"),
    (lambda: tn.op("lambda", type=lambda x: x, ref=lambda x: x), "is no name"),
    (lambda: tn.op("test_a", ref=lambda x: x), "a type rule is missing"),
    (lambda: tn.op("test_a", type=lambda x: x), "what it computes is missing"),
    (lambda: tn.op("test_a", type=lambda x: x, compute=lambda s, i, x: x(i)), "ref is missing"),
    (lambda: tn.op(ref=lambda x: x), "needs a name"),
    (lambda: tn.op("test_a", type=lambda x, y: x, ref=lambda x: x), "ref does not take (x, y)"),
    (lambda: tn.op("test_a", type=lambda x, *, n: x, ref=lambda x: x), "ref does not take (x, n)"),
    (lambda: tn.op("test_a", type=lambda x: x, ref=lambda x: x, vjp=lambda g, x: g), "vjp does not take (g, y, x)"),
    (lambda: tn.op("test_a", type=lambda x: x, ref=lambda x: x, compute=lambda s, x: x),
     "compute does not take (s, i, x)"),
    (lambda: tn.op("test_a", type=lambda x: x, ref=lambda x: x, promote="any"), "promote='any' is unknown"),
    (lambda: tn.op("test_a", type=lambda x: x, ref=lambda x: x, batch="any"), "batch='any' is unknown"),
    (lambda: tn.op(lambda x, n=2: x), "is no name"),
    (lambda: make_cube()(1.0, 2.0), "takes (x), and 2 positional arguments were given"),
])
def test_errors_of_definitions_say_what_is_wrong(run: Any, message: str) -> None:
    with pytest.raises(TenonError) as caught:
        run()
    assert message in str(caught.value)


def test_a_tensor_with_a_default_is_pointed_out() -> None:
    def test_power(x: Any, n: int = 2) -> Any:
        return x
    with pytest.raises(ArgumentError, match=r"def test_power\(x, \*, n=...\)"):
        tn.op(test_power)


def test_a_rule_with_the_wrong_number_of_gradients() -> None:
    bad = tn.op("test_bad", type=lambda x, y: x, ref=lambda x, y: x, vjp=lambda g, y, a, b: (g,))
    with pytest.raises(GradientError, match="test_bad: its vjp must return a tuple of 2"):
        tn.grad(lambda x: bad(x, x).sum())(vector())


def test_an_error_of_a_users_type_rule_points_to_the_call() -> None:
    def rule(x: TensorType) -> TensorType:
        raise ShapeError("hollow: no shape is right")
    hollow = tn.op("test_hollow", type=rule, ref=lambda x: x, replace=True)
    with pytest.raises(ShapeError, match="no shape is right") as caught:
        hollow(vector())
    assert "hollow(vector())" in str(caught.value)
