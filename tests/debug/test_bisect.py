"""`tn.debug.bisect` and `tn.debug.compare`: the first pass, kernel or layer that computes something else."""

import subprocess
import sys

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.debug.bisection import repeat_kernel
from tenon.errors import ArgumentError
from tenon.graph.build import copy, rebuild
from tenon.types import TensorType


def test_a_training_step_is_the_same_at_every_pass_and_kernel_and_is_not_done():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    @tn.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss
    x, y = tn.randn(5, 8), tn.tensor(np.array([0, 1, 2, 3, 0]))
    step(x, y)
    before = [p.numpy().copy() for p in net.parameters()]
    found = tn.debug.bisect(step, x, y)
    assert found.stage == "" and found.kernels > 5 and "fuse" in found.passes, found
    assert "all compute the same" in str(found)
    assert all(np.array_equal(p.numpy(), old) for p, old in zip(net.parameters(), before, strict=True))


def test_a_users_pass_that_is_wrong_is_named_and_its_reproducer_shows_it_in_a_process_of_its_own():
    def adds(graph):
        def visit(node, inputs):
            return inputs[0] + inputs[1] if node.op is tn.subtract else copy(node, inputs)
        return rebuild(graph, visit)
    tn.graph_pass(adds)
    try:
        found = tn.debug.bisect(tn.jit(lambda x: (x - 1.5).sum()), tn.randn(4, 3))
    finally:
        tn.remove_pass("adds")
    assert (found.stage, found.name) == ("pass", "adds") and "before" in found.said
    done = subprocess.run([sys.executable, str(found.reproducer / "reproduce.py")], capture_output=True, text=True,
                          check=True)
    assert "elements differ" in done.stdout


def test_a_kernel_whose_code_differs_from_its_reference_is_named():
    doubled = tn.op("doubled_wrongly", type=lambda x: TensorType(x.dtype, x.shape), ref=lambda x: x * 2,
                    compute=lambda s, i, x: x(i) * 3, replace=True)
    f = tn.jit(lambda x: (tn.exp(x) @ x + doubled(x)).sum())
    found = tn.debug.bisect(f, tn.randn(6, 6))
    assert found.stage == "kernel" and "doubled_wrongly" in found.name, found
    assert "by the interpreter" in found.said and "by the code" in found.said
    assert "elements differ" in repeat_kernel(found.reproducer)


def test_functions_with_constants_and_loops_are_looked_into():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    assert tn.debug.bisect(tn.jit(net), tn.randn(1, 3, 9, 9)).stage == ""

    def grow(x):
        while x.sum() < 100:
            x = x * 2
        return x
    assert tn.debug.bisect(tn.jit(grow), tn.ones(3)).stage == ""


def test_a_whole_loop_that_is_one_kernel_is_compared_and_shown_again():
    tripled = tn.op("tripled_wrongly", type=lambda x: TensorType(x.dtype, x.shape), ref=lambda x: x * 3,
                    compute=lambda s, i, x: x(i) * 4, replace=True)

    def grow(x):
        while x.sum() < 100:
            x = tripled(x) + 1
        return x
    found = tn.debug.bisect(tn.jit(grow), tn.ones(3))
    assert (found.stage, found.name) == ("kernel", "while_loop") and found.where.line == grow.__code__.co_firstlineno + 1
    assert "while_loop(" in (found.reproducer / "kernel.txt").read_text()
    assert "elements differ" in repeat_kernel(found.reproducer)


# ---------------------------------------------------------------- two models

class Net(nn.Module):
    def __init__(self):
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.second(tn.relu(self.first(x)))


def test_the_first_layer_at_which_two_nets_part_is_named():
    one, other = Net(), Net()
    other.load_state_dict(one.state_dict())
    assert tn.debug.compare(one, other, tn.ones(3, 4)).first is None
    with tn.no_grad():
        other.second.weight.assign(other.second.weight + 0.1)
    found = tn.debug.compare(one, other, tn.ones(3, 4))
    assert found.first.name == "second" and [row.parts for row in found.rows] == [False, True, True]
    assert "they part at second" in str(found)


def test_a_net_is_compared_with_its_original_in_pytorch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    original = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    mine = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    mine.load_state_dict({name: x.numpy() for name, x in original.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    assert tn.debug.compare(mine, original, x).first is None
    wrong = nn.Sequential(nn.Linear(4, 8), nn.GELU(approximate="tanh"), nn.Linear(8, 2))
    wrong.load_state_dict(mine.state_dict())
    assert tn.debug.compare(wrong, original, x * 3).first.name == "1"


def test_models_of_other_names_and_lengths_are_compared_in_order():
    one, other = nn.Sequential(nn.Linear(4, 8)), Net()
    rows = tn.debug.compare(one, other, tn.ones(1, 4)).rows
    assert len(rows) == 3 and rows[-1].name == "" and rows[-1].parts
    with pytest.raises(ArgumentError, match="compare takes modules"):
        tn.debug.compare(len, other, tn.ones(1, 4))
