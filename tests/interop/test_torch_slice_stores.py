"""Slices that nobody holds, changed in place, change what they are slices of, as in PyTorch: `x[0][1] = 9`."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from tenon.errors import ArgumentError, GradientError


def items(x: Any) -> Any:
    x[0][1] = 9
    x[1][1:3] *= 2
    x[1][2] += 1
    x[-1][..., 0] = x[0][3]
    return x


def methods(x: Any) -> Any:
    x[:2].add_(1)
    x[:, 0].copy_(x[:, 1])
    x[2].mul_(3.0)
    i = 1
    x[i - 1, i:].zero_()
    return x


def deeper(x: Any) -> Any:
    z = x.reshape(3, 2, 2) * 1
    z[0][1][1] = 4.0
    z[2][0] = z[1][1]
    z[1][:, 1][0] = 3.0
    return z


def held(x: Any) -> Any:
    net = SimpleNamespace(x=x * 1, rows=[x * 2], named={"a": x * 3})
    net.x[0][1] = 5.0
    net.rows[0][1][2] = 7.0
    net.named["a"][2].fill_(1.0)
    return net.x + net.rows[0] + net.named["a"]


def in_a_loop(x: Any) -> Any:
    for k in range(2):
        x[k + 1][k] = x[k][k + 1] + 1
    return x


PROGRAMS = (items, methods, deeper, held, in_a_loop)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_whole_changes(program: Any) -> None:
    data = np.arange(12.0).reshape(3, 4)
    wanted = program(torch.tensor(data)).numpy()
    np.testing.assert_array_equal(program(tn.tensor(data)).numpy(), wanted)
    step = tn.jit(program)
    for _ in range(2):
        np.testing.assert_array_equal(step(tn.tensor(data)).numpy(), wanted)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_go_through(program: Any) -> None:
    data = np.arange(12.0).reshape(3, 4)
    found = []
    for library in (torch, tn):
        x = library.tensor(data, requires_grad=True)
        y = program(x * 1)
        (y * y).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_what_cannot_be_told_is_refused() -> None:
    x = tn.zeros(2, 3)

    def whole() -> tn.Tensor:
        return x
    with pytest.raises(ArgumentError, match="nobody holds"):
        whole()[0][1] = 1.0         # a call is not made again
    with pytest.raises(ArgumentError, match="nobody holds"):
        exec("x[0][1] = 1.0", {"x": x})         # there is no text to read
    p = tn.nn.Parameter(tn.zeros(2, 3))
    with pytest.raises(GradientError, match="leaf"):
        p[0][1] = 1.0
    with tn.no_grad():
        p[0][1] = 1.0
    assert not x.any() and p.tolist() == [[0, 1, 0], [0, 0, 0]]


BESIDE_DYNAMO = """
import torch
if LATE:
    import tenon as tn
try:
    torch.compile(lambda x: x + 1, backend=lambda *_: 1 / 0)(torch.ones(2))
except torch._dynamo.exc.BackendCompilerFailed:
    pass                                    # now it looks at every frame
if not LATE:
    import tenon as tn

def program(x):
    x[:2].add_(1)
    y = x * 1
    y.mul_(2)
    y[0].zero_()
    return x.tolist(), y.tolist()

print(program(tn.ones(3)), end=" ")
torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))
print(program(tn.ones(3)))
try:
    tn.add(tn.ones(2), 1, out=tn.zeros(1, 2)[0])
except tn.errors.ArgumentError:
    print("refused")
"""


@pytest.mark.parametrize("late", [True, False])
def test_beside_what_looks_at_every_frame(late: bool, tmp_path: Path) -> None:
    """Where a call of Python holds what it is given once more, as after an error of `torch.compile`."""
    (program := tmp_path / "program.py").write_text(BESIDE_DYNAMO.replace("LATE", str(late)))
    found = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=300)
    one = "([2.0, 2.0, 1.0], [0.0, 4.0, 2.0])"
    assert found.stdout == f"{one} {one}\nrefused\n", found.stderr[-2000:]
