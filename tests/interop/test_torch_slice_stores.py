"""Slices that nobody holds, changed in place, change what they are slices of, as in PyTorch: `x[0][1] = 9`."""

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
