"""A tensor that the data choose is the one that eager code chooses, where others have it too, and no copy of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tenon as tn
from tenon import nn

A, B = tn.ones(2), tn.zeros(2)
W, V = nn.Parameter([1.0, 2.0]), nn.Parameter([3.0, 4.0])
STATE = SimpleNamespace(best=tn.zeros(()))
INPUTS = [(1.0, 2.0), (-1.0, -2.0), (3.0, 1.0), (0.0, 0.0), (2.0, -5.0)]


def from_outside(x: Any) -> Any:
    return A if x.sum() > 0 else B


def parameters(x: Any) -> Any:
    return (W if x.sum() > 0 else V), W


def of_which_one_requires_a_gradient(x: Any) -> Any:
    return W if x.sum() > 0 else x


def the_argument_or_a_new_one(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def swapped(x: Any) -> Any:
    p, q = x[0], x[1]
    if p > q:
        p, q = q, p
    both = [p, q]
    if both[0] < 0:
        both[0], both[1] = both[1], both[0]
    return p, q, both


def the_best_is_kept(x: Any) -> Any:
    total = x.sum()
    if total > STATE.best:
        STATE.best = total
    return total, STATE.best


def two_results(x: Any) -> Any:
    y = x * 2
    z = y if x.sum() > 0 else x
    return y, z, x


def in_an_option(x: Any) -> Any:
    s = x.sum()
    return None if s > 3 else s, {"s": s} if s < 0 else {"t": 1}


def the_largest_so_far(x: Any) -> Any:
    largest = first = x.max()
    for k in range(3):
        if x[k % 2] * k > largest:
            largest = x[k % 2] * k
    return largest, first


PROGRAMS = [from_outside, parameters, of_which_one_requires_a_gradient, the_argument_or_a_new_one, swapped,
            the_best_is_kept, two_results, in_an_option, the_largest_so_far]


def described(found: Any, names: dict[int, str]) -> Any:
    """A nest with a name for each tensor: the same one where it is the same."""
    if isinstance(found, tn.Tensor):
        name = names.setdefault(id(found), f"number {len(names)}")
        return name, found.tolist(), found.requires_grad
    if isinstance(found, (tuple, list)):
        return [described(x, names) for x in found]
    return {key: described(x, names) for key, x in found.items()} if isinstance(found, dict) else found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_chosen_tensor_is_itself(program: Any) -> None:
    outcomes = []
    for run in (program, tn.jit(program, fullgraph=True)):
        STATE.best = tn.zeros(())
        seen = []
        for data in INPUTS * 2:
            x = tn.tensor(data)
            names = {id(A): "a", id(B): "b", id(W): "w", id(V): "v", id(x): "x"}
            found = run(x)
            seen.append(described([found, STATE.best], names))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]


def test_what_is_written_to_a_chosen_tensor_is_seen_by_others() -> None:
    for jit in (lambda f: f, tn.jit):
        kept = [tn.zeros(2), tn.zeros(2)]
        choose = jit(lambda x, kept=kept: kept[0] if x.sum() > 0 else kept[1])
        for value in (1.0, -1.0, 1.0):
            choose(tn.tensor([value])).add_(1)
        assert [x.tolist() for x in kept] == [[2.0, 2.0], [1.0, 1.0]]
