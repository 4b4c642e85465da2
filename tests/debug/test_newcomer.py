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
    # Which of the six: the first whose output is not finite.
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
