"""Sizes that the data decide: one capture for all of them, with the results of eager code, 0 and 1 included."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.cpython import object_layout
from tenon.errors import ArgumentError, CaptureError, GraphError, OutOfRange, ShapeError
from tenon.graph.interpret import interpret
from tenon.graph.parse import parse_graph
from tenon.graph.size_stages import stages_of
from tenon.graph.verify import verify
from tenon.pipeline import compile

W = tn.tensor(np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32))


def vectors():
    """Of eight elements, of which 5, 0, 8, 1 and 2 are positive."""
    signs = [[1, 1, 1, 1, 1, -1, -1, -1], [-1] * 8, [1] * 8, [-1] * 7 + [1], [-1, 1, -1, 1, -1, -1, -1, -1]]
    return [(tn.tensor((np.array(s) * np.linspace(0.3, 2, 8)).astype(np.float32)),) for s in signs]


def matrices():
    return [(x.reshape(8, 1) * tn.tensor([1.0, 2.0, -1.0]),) for x, in vectors()]


def numbers(*values):
    return [(tn.tensor(np.linspace(-1, 1, 8).astype(np.float32)), tn.tensor(n)) for n in values]


def a_sum(x):
    return x[x > 0].sum()


def a_mean(x):
    return x[x > 0].mean()


def returned_with_its_length(x):
    y = x[x > 0] * 2 + 1
    return y, len(y), y.shape[0] * 3


def rows_in_a_product(x):
    y = x[x[:, 0] > 0]
    return (y @ W).sum(axis=0), (y @ y.T).sum()


def a_mask_of_two_axes(x):
    return (x[x > 0] ** 2).sum(), tn.masked_select(x, x < 0)


def places(x):
    i, j = tn.nonzero(x > 0)
    return x[i, j], i + j, tn.argwhere(x > 1)


def two_sizes_side_by_side(x):
    a, b = x[x > 0], x[x <= 0]
    return tn.cat([b, a]), a.sum() * b.shape[0]


def two_masks_of_one_size(x):
    return (x[x > 0] * (2 * x)[2 * x > 0]).sum()


def a_size_in_a_condition(x):
    y = x[x > 0]
    if y.shape[0] > 1:
        return y.sum() / y.shape[0]
    return x.min()


def a_size_as_a_number(x):
    n = int((x > 0).sum())
    return x.sum() / max(n, 1), tn.zeros(n, 2), tn.arange(n) * 2, tn.ones(2 * n + 1).sum()


def filled_up(x):
    y = x[x > 0]
    return tn.cat([y, tn.zeros(8 - y.shape[0])])


def pieces_of_it(x):
    y = x[x > 0]
    return y[:3], y[1:], y[-2:], y[::2], y[1:] - y[:-1]


def joined_in_a_loop_of_python(x):
    found = x[:0]
    for k in range(3):
        found = tn.cat([found, x[x > 0.4 * k]])
    return found


def sorted_and_added_up(x):
    y = x[x > 0]
    return tn.sort(y), tn.cumsum(y, axis=0), y[:, None] * y[None, :]


def written_back(x):
    y = x.clone()
    y[y > 0] = y[y > 0] * 3
    return y


def a_gradient(x):
    return tn.grad(lambda t: (t[t > 0] ** 2).sum())(x)


def a_gradient_of_what_is_written_back(x):
    def f(t):
        y = t * 2
        y[y > 0] = t[t > 0] ** 2
        return (y * y).sum()
    return tn.grad(f)(x)


def different_elements(x):
    values, inverse, counts = tn.unique((2 * x).round(), return_inverse=True, return_counts=True)
    return values, inverse, (values * counts).sum(), tn.unique(x.round())


ON_VECTORS = [a_sum, a_mean, returned_with_its_length, two_sizes_side_by_side, two_masks_of_one_size,
              a_size_in_a_condition, a_size_as_a_number, filled_up, pieces_of_it, joined_in_a_loop_of_python,
              sorted_and_added_up, written_back, a_gradient, a_gradient_of_what_is_written_back, different_elements]
ON_MATRICES = [rows_in_a_product, a_mask_of_two_axes, places]


def a_piece(x, n):
    return x[:n], x[int(n):], x[:int(n)].sum()


def counted(x, n):
    return tn.arange(int(n) + 2), x.sum()


def repeated_as_often_as_the_data_say(x, n):
    counts = tn.maximum(tn.arange(8) - n, 0)
    return tn.repeat_interleave(x, counts), x.reshape(4, 2).repeat(counts[4:], axis=0) * 2


def bins(x, n):
    return tn.bincount(tn.arange(4) * n), tn.bincount(tn.arange(8), weights=x, minlength=10)


def leaves(found):
    return [y for x in found for y in leaves(x)] if isinstance(found, (tuple, list)) else [found]


def same(found, expected):
    found, expected = leaves(found), leaves(expected)
    assert [type(x) for x in found] == [type(x) for x in expected]
    for x, y in zip(found, expected, strict=True):
        if isinstance(x, tn.Tensor):
            assert x.dtype is y.dtype
            assert x.shape == y.shape
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6, atol=1e-6)


def captures(jitted):
    return [c for record in jitted.records.values() for c in record.captures]


@pytest.mark.parametrize("function, calls", [
    *((f, vectors()) for f in ON_VECTORS), *((f, matrices()) for f in ON_MATRICES),
    (a_piece, numbers(3, 0, 1, 8, 12, -2)), (counted, numbers(3, 0, 1, 9)),
    (repeated_as_often_as_the_data_say, numbers(3, 0, 9, 6, -1)), (bins, numbers(2, 0, 1, 5))],
    ids=lambda x: getattr(x, "__name__", ""))
def test_one_capture_serves_all_sizes_and_none_runs_eagerly(function, calls):
    jitted = tn.jit(function, fullgraph=True)
    for args in calls:
        same(jitted(*args), function(*args))
    (captured,) = captures(jitted)
    assert captured.failures == 0


@pytest.mark.parametrize("function", ON_VECTORS, ids=lambda f: f.__name__)
def test_the_text_of_such_a_graph_says_what_it_does(function):
    for x, in vectors():
        graph = tn.jit(function).graph(x)
        read = verify(parse_graph(str(graph)))
        for found, expected in zip(interpret(read, [x.numpy()]), interpret(graph, [x.numpy()]), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_training_step_on_chosen_rows_is_one_capture():
    def train(wrap):
        tn.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = optim.Adam(net.parameters(), lr=0.05)

        def step(x, valid):
            loss = (net(x[valid]) ** 2).sum() / (valid.sum() + 1)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        step = wrap(step)
        data = np.random.default_rng(0)
        losses = [float(step(tn.tensor(data.standard_normal((6, 3)).astype(np.float32)), tn.tensor(data.random(6) < p)))
                  for p in (0.5, 0.7, 1.0, 0.2, 0.0, 0.5)]
        return losses, [p.numpy() for p in net.parameters()], step
    losses, weights, _ = train(lambda f: f)
    found, changed, step = train(lambda f: tn.jit(f, fullgraph=True))
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for x, y in zip(changed, weights, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    assert len(captures(step)) == 1


def test_gradients_flow_back_through_a_call_whose_result_has_such_a_size():
    jitted = tn.jit(lambda x, w: tn.tanh(x[x[:, 0] > 0] @ w), fullgraph=True)
    for x, in matrices():
        found = []
        for f in (jitted, jitted.function):
            w = tn.tensor(W.numpy(), requires_grad=True)
            y = f(x, w)
            (y * tn.arange(y.shape[0]).reshape(-1, 1)).sum().backward()
            found.append(w.grad)
        np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-5, atol=1e-6)


def test_second_derivatives_of_a_jitted_function_that_chooses():
    jitted = tn.jit(lambda x: (x[x > 0] ** 3).sum())
    np.testing.assert_array_equal(tn.hessian(jitted)(tn.tensor([1.0, -2.0, 3.0])).numpy(), np.diag([6.0, 0, 18]))


def test_errors_are_those_of_eager_code():
    with pytest.raises(OutOfRange):
        tn.jit(lambda x: x[x > 0][2])(tn.tensor([1.0, -1.0, 2.0]))
    first = tn.jit(lambda x: x[x > 0][2], fullgraph=True)
    assert float(first(tn.tensor([1.0, 2.0, 3.0]))) == 3
    with pytest.raises(OutOfRange):
        first(tn.tensor([1.0, -1.0, 2.0]))
    added = tn.jit(lambda x, y: x[x > 0] + y[y > 0], fullgraph=True)
    assert added(tn.tensor([1.0, 2.0]), tn.tensor([3.0, 4.0])).tolist() == [4, 6]
    for x, y in (([1.0, 2.0, 3.0], [1.0, 2.0, -1.0]), ([1.0, 2.0], [3.0, 4.0])):
        a, b = tn.tensor(x), tn.tensor(y)
        if sum(v > 0 for v in x) == sum(v > 0 for v in y):
            same(added(a, b), a[a > 0] + b[b > 0])
        else:
            with pytest.raises(ShapeError):
                added(a, b)
    with pytest.raises(ShapeError):
        tn.jit(lambda n: tn.zeros(int(n)))(tn.tensor(-3))
    with pytest.raises(ShapeError, match="count must not be negative"):
        tn.jit(lambda x, n: x.repeat(n))(tn.ones(2), tn.tensor([1, -1]))
    with pytest.raises(ArgumentError, match="negative numbers have no bin"):
        tn.jit(lambda n: tn.bincount(n))(tn.tensor([1, -1]))


def test_a_size_of_another_call_is_not_taken_for_a_constant():
    jitted = tn.jit(lambda x: x[x > 0] + tn.ones(3), fullgraph=True)
    x = tn.tensor([1.0, 2.0, 3.0, -1.0])
    assert jitted(x).tolist() == [2, 3, 4]
    assert jitted(tn.tensor([-1.0, -1.0, -1.0, 1.0])).tolist() == [2, 2, 2]     # one element, which is repeated
    with pytest.raises(ShapeError):
        jitted(tn.tensor([1.0, 1.0, -1.0, -1.0]))


def test_only_what_depends_on_a_size_waits_for_it():
    def f(x):
        y = x[x > 0]
        return x.sum() + y.sum(), (x[x < 0] * 2).sum()
    stages = stages_of(tn.jit(f).graph(vectors()[0][0]))
    assert [[node.op.name for node in stage.after] for stage in stages] == [["argwhere", "argwhere"], []]


def test_in_a_branch_on_a_tensor_the_function_runs_with_graph_breaks():
    def f(x):
        return x[x > 0].sum() if x.sum() > 0 else x.sum()
    with pytest.raises(CaptureError, match="within a branch or loop"):
        tn.jit(f, fullgraph=True)(vectors()[0][0])
    jitted = tn.jit(f)
    for x, in vectors():
        same(jitted(x), f(x))


def test_under_vmap_it_is_an_error():
    for wrap in (tn.vmap, lambda f: tn.jit(tn.vmap(f))):
        with pytest.raises(CaptureError, match="may differ between the examples"):
            wrap(lambda x: x[x > 0].sum())(tn.ones((2, 3)))


@pytest.mark.parametrize("text", [
    "def f(x: bool[4]):\n    v0: i64[3, 1] = argwhere(x, size=3)\n    return v0",
    "def f(n: i64):\n    v0: bool[5] = counted(n, size=5)\n    return v0"])
def test_a_size_that_is_stated_and_not_true_is_an_error(text):
    graph = verify(parse_graph(text))
    data = [np.ones(p.shape, p.dtype.numpy) for p in graph.params]
    for run in (lambda: interpret(graph, data), lambda: compile(graph).run(data)):
        with pytest.raises(ShapeError):
            run()


@pytest.mark.parametrize("text", [
    "def f(x: bool[4]):\n    v0: i64[4, 1] = argwhere(x, size=None)\n    return v0",
    "def f(x: f32[data_0]):\n    v0: f32 = dimension(size=data_1, dtype=f32)\n    return v0"])
def test_a_size_that_nothing_says_is_refused(text):
    with pytest.raises(GraphError):
        verify(parse_graph(text))


def test_a_loop_that_goes_on_while_something_is_left_comes_to_an_end():
    def turns(x):
        n = 0
        while x.numel() > 0:
            x = x[1:]
            x = x[x > 0]
            n += 1
        return n
    jitted = tn.jit(turns)
    for values in ([1.0, 2.0, -1.0, 3.0], [1.0], [-1.0, 2.0]):
        assert jitted(tn.tensor(values)) == turns(tn.tensor(values))


@pytest.mark.parametrize("f", [
    lambda x, n: (x * 2)[:int(n)].sum(), lambda x, n: tn.exp(x)[int(n) - 1:], lambda x, n: x[0] * tn.arange(int(n)),
    lambda x, n: (tn.zeros(int(n)) + x[0]).sum(), lambda x, n: tn.exp(x)[:n].mean(), lambda x, n: x[1:int(n)] ** 3])
def test_a_gradient_that_is_asked_for_outside_knows_the_size(f):
    jitted = tn.jit(f, fullgraph=True)
    for n in (2, 5, 1, 8):
        x, same_x = (tn.linspace(-1, 1, 8).requires_grad_() for _ in range(2))
        jitted(x, tn.tensor(n)).sum().backward()
        f(same_x, tn.tensor(n)).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), same_x.grad.numpy(), rtol=1e-6)
    captured, = (c for record in jitted.records.values() for c in record.captures)
    for graph in (captured.halves.forward, *(half.backward for half in captured.halves.parts)):
        verify(graph)


@pytest.mark.skipif(not object_layout.READABLE, reason="this Python's objects are not read")
def test_warm_calls_are_looked_at_natively():
    f = tn.jit(lambda x: x[x > 0].sum())
    for seed in range(5):
        x = tn.asarray(np.random.default_rng(seed).standard_normal(7).astype(np.float32))
        np.testing.assert_allclose(f(x).numpy(), x.numpy()[x.numpy() > 0].sum(), rtol=1e-6)
    assert [c.fast_call is not None for record in f.records.values() for c in record.captures] == [True]
