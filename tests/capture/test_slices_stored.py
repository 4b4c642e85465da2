"""`x[i][j] = value` and `x[i].add_(1)` change `x` in rewritten code too, where a condition on data stands beside them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError
from tests.capture.both import check, outcome, same


def twice(x: Any) -> Any:
    m, i, j = x.reshape(3, 1) + tn.zeros(3), 1, 2
    m[i][j] -= 1
    m[m == 7] += 0.5
    return m


def slices_of_slices(x: Any) -> Any:
    m, i, j = x.reshape(3, 1) + tn.zeros(3), 1, 2
    if m.sum() > 0:
        m += 1
    m[i][j:][0], m[i:][0][j] = 5, m[j][i] * 2
    m[i, :][0] *= 3
    m[..., j][i:][0] = 8
    return m


def methods(x: Any) -> Any:
    m, i = x.reshape(3, 1) + tn.zeros(3), 1
    if m.sum() > 0:
        m += 1
    m[i].add_(1)
    m[i][1:].mul_(3)
    m.data[i].fill_(9)
    held = m[i].sub_(5)
    m[0][i].clamp_(0, 1)
    return m, held


def by_data(x: Any) -> Any:
    m = x.reshape(3, 1) + tn.zeros(3)
    k = int(x.argmax())
    m[k][0] = 7
    m[1][k] += 1
    m[k][k:][0] = 5
    m[k].neg_()
    return m


def in_a_loop(x: Any) -> Any:
    m, i = x.reshape(3, 1) + tn.zeros(3), 0
    while m.sum() > 0:
        m[i][i] -= 7
        m[i].sub_(1)
    return m


def in_containers(x: Any) -> Any:
    m, i, j = x.reshape(3, 1) + tn.zeros(3), 1, 2
    if m.sum() > 0:
        m += 1
    held, named = [m, m * 2], {"a": (m, 3)}
    held[1][i][j] = 100
    named["a"][0][i][j] -= 5
    for k in range(2):
        held[k][i:, 0][0] += 1
    return held, named


def no_store(x: Any) -> Any:
    m, i = x.reshape(3, 1) * tn.ones(3), 1
    if m.sum() > 0:
        m += 1
    m[i].unsqueeze_(0)
    m[i].requires_grad_(False)
    (m + 1)[i][0] = 3
    return m


@pytest.mark.parametrize("function", [twice, slices_of_slices, methods, by_data, in_a_loop, in_containers, no_store])
def test_as_eagerly(function: Callable[..., Any]) -> None:
    check(function)


def test_numbers_that_are_arguments() -> None:
    def change(m: tn.Tensor, i: int, j: int) -> tn.Tensor:
        m[i][j] = m[i][j] - 1
        m[m > 6] = 0.5
        return m

    jitted = tn.jit(change, fullgraph=True)
    for i, j in ((0, 1), (0, 1), (2, 0), (1, 2)):
        given = [tn.asarray(np.arange(9, dtype=np.float32).reshape(3, 3)) for _ in range(2)]
        same(change(given[0], i, j), jitted(given[1], i, j), f"{i, j}")
        same(given[0], given[1], f"{i, j}, the argument")


@pytest.mark.parametrize("store", ["m.T[i] = 3", "m[int(i)][i] = 3", "(m + 1)[i] = 3", "m.T.add_(3)", "m[int(i)].add_(3)"])
def test_what_would_be_lost_is_refused(store: str, tmp_path: Any) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"def change(m, i):\n    if m.sum() > 0:\n        m = m + 1\n    {store}\n    return m\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    want, got = (outcome(lambda f=f: f(tn.ones(2, 2), 1)) for f in (names["change"], tn.jit(names["change"])))
    assert want == got and want[0] is ArgumentError
