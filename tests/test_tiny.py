"""One small test a promise: what `make check` runs before every commit."""

import subprocess
import sys

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import ShapeError
from tenon.graph.text import parse_graph, print_graph
from tenon.pipeline import compile


def training(decorate):
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = optim.Adam(net.parameters(), lr=0.01)

    @decorate
    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    rng = np.random.default_rng(0)
    losses = [float(step(rng.standard_normal((6, 4), np.float32), rng.integers(0, 3, 6))) for _ in range(5)]
    return losses, [p.numpy().copy() for p in net.parameters()], step


def test_deleting_jit_changes_nothing_but_speed():
    eager, jitted = training(lambda f: f), training(tn.jit)
    np.testing.assert_allclose(jitted[0], eager[0], rtol=1e-4)
    for a, b in zip(jitted[1], eager[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_one_graph_holds_forward_backward_and_the_update():
    step = training(tn.jit)[2]
    (record,) = step.records.values()
    assert len(record.captures) == 1 and record.eager is None
    graph = record.captures[0].graph
    assert {"matmul", "sqrt"} <= {node.op.name for node in graph.nodes}
    assert len(record.captures[0].assigned) >= 4 * 3 + 1      # weights, two moments each, the step count


def test_every_node_knows_the_users_line():
    @tn.jit
    def f(x):
        return tn.exp(x) * 2
    assert all(node.loc.file == __file__ for node in f.graph(tn.ones(3)).nodes)


def test_a_graph_is_text_and_back():
    text = print_graph(tn.jit(lambda x: tn.tanh(x @ x).sum(axis=0)).graph(tn.ones((3, 3))))
    assert print_graph(parse_graph(text)) == text
    np.testing.assert_allclose(compile(parse_graph(text)).run([np.ones((3, 3), np.float32)])[0],
                               3 * np.tanh(np.full(3, 3.0)), rtol=1e-5)


def test_the_same_seed_gives_the_same_numbers_eager_or_compiled():
    def draw():
        return tn.randn(4), tn.rand(3)
    seen = []
    for f in (draw, tn.jit(draw, fullgraph=True)):
        tn.manual_seed(7)
        seen.append([x.numpy() for _ in range(2) for x in f()])
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not np.allclose(seen[0][0], seen[0][2])


def test_gradients_of_gradients():
    third = tn.grad(tn.grad(tn.grad(lambda x: x ** 4)))
    assert float(third(tn.tensor(2.0))) == pytest.approx(48.0)


def test_a_mistake_is_shown_where_it_is():
    w = tn.ones((2, 3))
    with pytest.raises(ShapeError) as caught:
        tn.ones((4, 3)) @ w
    assert "f32[4, 3] @ f32[2, 3]" in str(caught.value)
    assert "tn.ones((4, 3)) @ w" in str(caught.value) and "hint" in str(caught.value)


def test_a_saved_model_is_data(tmp_path):
    net = nn.Linear(3, 2)
    tn.save(net, tmp_path / "net.safetensors")
    other = nn.Linear(3, 2)
    other.load_state_dict(tn.load(tmp_path / "net.safetensors"))
    np.testing.assert_array_equal(other.weight.numpy(), net.weight.numpy())


def test_a_missing_comma_is_pythons_own_error():
    with pytest.raises(SyntaxError):
        compile_source = "nn.Sequential(nn.Linear(28 * 28, 512) nn.ReLU())"
        exec(compile_source)


def test_import_loads_no_compiler():
    code = "import sys, tenon; assert not [m for m in sys.modules if m.startswith('llvmlite')]"
    subprocess.run([sys.executable, "-c", code], check=True)
