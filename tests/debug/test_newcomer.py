"""What somebody new has to find out, each with the commands that docs/debugging.md shows, and no others."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.graph.build import copy, rebuild
from tenon.observe import subscribe


class Layer(nn.Module):
    def __init__(self, planted):
        self.linear, self.planted = nn.Linear(16, 16), planted

    def forward(self, x):
        y = self.linear(x)
        scale = tn.sqrt(y.mean(axis=1, keepdims=True) - 100.0) if self.planted else 1.0
        return tn.tanh(y) * scale


class Deep(nn.Module):
    def __init__(self, planted=None):
        self.layers = [Layer(k == planted) for k in range(6)]
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def trainer(net):
    optimizer = optim.SGD(net.parameters(), lr=0.01)

    @tn.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


X, Y = tn.randn(4, 16), tn.tensor(np.array([0, 1, 2, 0]))


def test_the_layer_that_makes_a_nan_is_found():
    step = trainer(Deep(planted=3))
    with tn.debug.check(step), pytest.raises(tn.debug.BadNumber) as caught:
        step(X, Y)
    assert caught.value.operator == "sqrt" and "scale = tn.sqrt(" in str(caught.value)
    assert caught.value.module == "Deep.layers.3" and ", in Deep.layers.3\n" in str(caught.value)
    # Or the first whose output is not finite.
    with tn.debug.watch(step, "net.layers.?") as w:
        step(X, Y)
    bad = [v.name for v in w.all("net.layers.?") if not np.isfinite(v.value).all()]
    assert bad[0] == "net.layers.3", bad


def test_why_a_function_is_captured_again_is_found(capfd):
    @tn.jit
    def scaled(x, mode):
        return x * 2 if mode == "double" else x
    told = []
    stop = subscribe(lambda event: told.append(event.fields["why"]) if event.name == "recompiled" else None)
    scaled(tn.ones(2), "double")
    scaled(tn.ones(2), "same")
    stop()
    assert told == ["mode is 'same', and was 'double'"]
    assert told[0] in str(tn.explain(scaled))


def test_the_pass_that_breaks_a_program_is_found():
    def halves_products(graph):
        def visit(node, inputs):
            return inputs[0] * 0.5 if node.op is tn.tanh else copy(node, inputs)
        return rebuild(graph, visit)
    tn.graph_pass(halves_products)
    try:
        found = tn.debug.bisect(trainer(Deep()), X, Y)
    finally:
        tn.remove_pass("halves_products")
    assert (found.stage, found.name) == ("pass", "halves_products") and (found.reproducer / "reproduce.py").exists()


def test_the_gradient_of_one_layer_in_a_compiled_step_is_read():
    net = Deep()
    step = trainer(net)
    for _ in range(2):
        step(X, Y)
    with tn.debug.watch(step) as w:
        step(X, Y)
    layer = w["net.layers.2"]
    assert layer.grad.shape == (4, 16) and np.abs(layer.grad).max() > 0
    weight = w["net.layers.2.linear.weight"]
    np.testing.assert_allclose(weight.before - 0.01 * weight.grad, weight.value, rtol=1e-5, atol=1e-7)


def test_the_layer_whose_gradient_is_infinite_is_found():
    class Root(nn.Module):
        def __init__(self, planted):
            self.linear, self.planted = nn.Linear(16, 16), planted

        def forward(self, x):
            y = self.linear(x) * (1.0 - self.planted)
            return tn.sqrt(y * y + 1.0 - self.planted)      # sqrt'(0) is infinite; times 0 it is NaN, in one kernel

    net = nn.Sequential(*(Root(float(k == 2)) for k in range(4)), nn.Linear(16, 3))
    step = trainer(net)
    with tn.debug.check(step, nan=False), pytest.raises(tn.debug.BadNumber, match="in the gradient") as caught:
        step(X, Y)
    assert caught.value.module == "Sequential.2", caught.value


def test_the_line_that_makes_a_step_slow_is_found():
    @tn.jit
    def step(x):
        y = tn.tanh(x)
        for _ in range(30):
            y = tn.sort(y + x, axis=1)
        return (y * 2.0).sum()
    profile = tn.debug.profile(step, tn.randn(64, 512))
    slowest = profile.by("line")[0]
    assert str(slowest.key).endswith(f":{step.function.__code__.co_firstlineno + 4}"), slowest
    costs = {float(row.split()[0]): row for row in profile.source().splitlines() if " ms " in row}
    assert "tn.sort(y + x" in costs[max(costs)]


def test_the_tensor_that_sets_the_peak_of_memory_is_found():
    class Wide(nn.Module):
        def __init__(self):
            self.enter, self.leave = nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            x = self.enter(x)
            pairs = tn.exp(-(x[:, None, :] - x[None, :, :]) ** 2)       # [batch, batch, 16]
            nearest = tn.sort(pairs, axis=1)                            # and as many indices, for the gradient
            return self.leave(x + nearest.mean(axis=1))
    step = trainer(Wide())
    seen = tn.debug.view(step, tn.randn(64, 16), tn.zeros(64, dtype=tn.int64), times=False, code=False)
    largest = seen.memory().splitlines()[1]
    line = Wide.forward.__code__.co_firstlineno + 3
    assert "0.524 MB  i64[64, 64, 16]" in largest and f"test_newcomer.py:{line} Wide forward" in largest, seen.memory()
