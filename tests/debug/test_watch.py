"""`tn.debug.watch`: values of compiled calls by the names of the program, and nothing is captured or compiled anew."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.debug.array_summary import summary_of
from tenon.errors import ArgumentError
from tenon.observe import subscribe

COMPILING = {"capture", "compile", "pass", "lower", "assemble", "machine_code"}


class Block(nn.Module):
    def __init__(self):
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        inner = tn.tanh(self.up(x))
        return inner + x


class Net(nn.Module):
    def __init__(self):
        self.blocks, self.head = [Block(), Block()], nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        hidden = tn.relu(x)
        return self.head(hidden)


def made():
    net = Net()
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    def plain(x, y):
        optimizer.zero_grad()
        logits = net(x)
        scaled = logits * 2.0
        scaled = scaled + 1.0
        loss = nn.functional.cross_entropy(scaled, y)
        loss.backward()
        optimizer.step()
        return loss
    step = tn.jit(plain)
    x, y = tn.randn(5, 8), tn.tensor(np.array([0, 1, 2, 3, 0]))
    for _ in range(3):          # the first finds no gradients
        step(x, y)
    return net, step, x, y


def eager(net, x, y):
    """Values and gradients of the step, by eager code, before its update."""
    h = x
    inners = []
    for block in net.blocks:
        inners.append(tn.tanh(block.up(h)))
        h = inners[-1] + h
    hidden = tn.relu(h)
    loss = nn.functional.cross_entropy(net.head(hidden) * 2.0 + 1.0, y)
    (slope,) = tn.autograd.grad(loss, hidden, retain_graph=True)
    return {"inner": [x.numpy() for x in inners], "hidden": hidden.numpy(), "slope": slope.numpy()}     # no tape is left


def test_values_gradients_and_state_are_those_of_the_call_and_nothing_is_compiled():
    net, step, x, y = made()
    expected, weight = eager(net, x, y), net.head.weight.numpy().copy()
    heard = []
    stop = subscribe(lambda event: heard.append(event.name))
    try:
        with tn.debug.watch(step, "hidden*", "loss", "*inner") as w:
            loss = step(x, y)
        hidden, inners = w["hidden"], w["inner"]
    finally:
        stop()
    assert not COMPILING & set(heard)
    np.testing.assert_allclose(hidden.value, expected["hidden"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hidden.grad, expected["slope"], rtol=1e-4, atol=1e-6)
    assert [v.name for v in inners] == ["net.blocks.0.inner", "net.blocks.1.inner"]
    for found, wanted in zip(inners, expected["inner"], strict=True):
        np.testing.assert_allclose(found.value, wanted, rtol=1e-5, atol=1e-6)
    assert hidden.source == "kept by the compiled program" and float(w["loss"].value) == float(loss)
    state = w["net.head.weight"]
    assert np.array_equal(state.before, weight) and np.array_equal(state.value, net.head.weight.numpy())
    assert not np.array_equal(state.before, state.value) and state.grad.shape == (4, 8)
    assert w["optimizer.exp_avg[net.head.weight]"].value.shape == (4, 8)
    assert "hidden at test_watch.py" in repr(w)


def test_what_fusion_removed_is_computed_and_says_so():
    _, step, x, y = made()
    with tn.debug.watch(step, "scaled", line="test_watch.py:42") as w:
        step(x, y)
    first, second = w["scaled"]
    assert first.source.startswith("computed by the interpreter")
    np.testing.assert_allclose(first.value + 1.0, second.value, rtol=1e-5, atol=1e-6)
    (at_line,) = w.lines()
    assert at_line.name == "multiply at test_watch.py:42" and np.array_equal(at_line.value, first.value)
    logits = w["net"]
    np.testing.assert_allclose(logits.value * 2.0, first.value, rtol=1e-6)


def test_a_watched_step_computes_what_it_would_have_computed():
    (net, step, x, y), (other, plain, *_) = made(), made()
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        q.assign(p)
    with tn.debug.watch(step, "*") as w:
        loss = step(x, y)
    with tn.debug.watch(plain, "*", summaries=True):
        pass
    del w
    assert np.isfinite(float(loss))
    assert step(x, y).shape == ()


def test_turns_of_loops_and_the_branches_taken():
    @tn.jit
    def grow(x):
        while x.sum() < 100:
            if x[0] > 3:
                doubled = x * 2
            else:
                doubled = x + 1
            x = doubled
        return x
    grow(tn.ones(3))
    with tn.debug.watch(grow, "doubled") as w:
        grow(tn.ones(3))
    twice, once = w["doubled"]
    assert [v[0] for v in twice.turns] == [8, 16, 32, 64] and [v[0] for v in once.turns] == [2, 3, 4]
    assert [b.taken for b in w.branches] == [False] * 3 + [True] * 4 + [7]
    assert "loop at test_watch.py" in repr(w.branches[-1])


def test_gradients_where_backward_is_called_outside():
    @tn.jit
    def f(x):
        powers = tn.exp(x)
        return (powers * powers).sum()
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    f(x).backward()
    with tn.debug.watch(f, "powers") as w:
        f(x).backward(gradient=tn.tensor(3.0))
    np.testing.assert_allclose(w["powers"].grad, 6 * np.exp([1.0, 2.0]), rtol=1e-5)


def test_summaries_are_of_what_is_stored_and_keep_no_arrays():
    _, step, x, y = made()
    with tn.debug.watch(step, "*inner", "hidden", summaries=True) as w:
        step(x, y)
    assert set(w.summaries) >= {"net.blocks.0.inner", "net.blocks.1.inner", "net.hidden"} and not w.calls
    told = w.summaries["net.hidden"]
    assert told.shape == (5, 8) and told.min == 0 and told.nan == 0 and sum(told.histogram) == 40


def test_summaries_of_odd_arrays():
    told = summary_of(np.array([1.0, np.nan, np.inf, -np.inf, 3.0], np.float32))
    assert (told.min, told.max, told.mean, told.nan, told.inf) == (1.0, 3.0, 2.0, 1, 2)
    assert summary_of(np.zeros((0, 3), np.float32)).min is None
    assert summary_of(np.full(7, np.nan)).nan == 7
    assert summary_of(np.array([True, False])).mean == 0.5
    exact = summary_of(np.arange(1_000_000, dtype=np.float32) + 1e6)
    assert abs(exact.std / 288675.1 - 1) < 1e-4 and abs(sum(exact.histogram) - 1_000_000) < 10
    assert summary_of(np.array([3 + 4j])).max == 5.0


def test_several_calls_are_kept_where_asked():
    f = tn.jit(lambda x: x * 2)
    with tn.debug.watch(f, keep=2) as w:
        for k in range(4):
            f(tn.tensor([float(k)]))
    assert [float(call.arrays[0][0]) for call in w.calls] == [2.0, 3.0]


def test_what_is_not_there_is_said():
    f = tn.jit(lambda x: x * 2)
    with tn.debug.watch(f) as w:
        with pytest.raises(ArgumentError, match="no compiled call"):
            _ = w["x"]
        f(tn.ones(2))
        with pytest.raises(ArgumentError, match="nothing is called 'hiden'"):
            _ = w["hiden"]
    breaking = tn.jit(lambda x: min(x.tolist()))
    with tn.debug.watch(breaking) as w:
        breaking(tn.ones(2))
        with pytest.raises(ArgumentError, match="it runs with graph breaks"):
            _ = w["x"]
