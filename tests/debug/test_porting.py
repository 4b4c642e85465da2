"""`tn.debug.porting("torch")`: calls that mean another thing in PyTorch are warned about, once a line."""

import warnings
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.debug import PortingWarning
from tenon.debug.porting import DIFFERENCES, METHODS
from tenon.errors import ArgumentError
from tenon.graph.operators import Operators

HELD = np.arange(4.0)
CUBE, AT = tn.ones(2, 3, 2), tn.tensor([0, 1])
X, Y = tn.tensor([[3.0, 1.0, 2.0, 5.0], [4.0, 0.0, 6.0, 7.0]]), tn.tensor([1.0, 2.0])


def stored(x: Any) -> None:
    x[0, :, AT] = 1.0


def held(change: Any, cut: Any = lambda x: x[0]) -> Any:
    """What cuts a piece out of a tensor that there still is, and changes it in place."""
    def call() -> Any:
        x = tn.ones(2, 3)
        piece = cut(x)
        return change(piece), x
    return call


def changed_rows(x: Any) -> None:
    for row in x:
        row.mul_(2)


def changed_at_once() -> None:
    x = tn.ones(3, 4)
    x[0].zero_()
    x[1] += 1
    x[2][1] = 5
    x[2][0] += 7
    x.data[1].add_(1)
    y = x.view(-1)
    y = y * 2
    y += 1
    whole = x[[0, 1]]
    whole.zero_()
    assert x.tolist() == [[0, 0, 0, 0], [3, 3, 3, 3], [8, 5, 1, 1]]


DIFFERENT: list[Any] = [
    lambda: X.max(1), lambda: tn.max(X, 1), lambda: X.min(dim=0), lambda: X.sort(1), lambda: tn.sort(X), lambda: X.median(),
    lambda: X.median(1), lambda: X.nanmedian(1), lambda: X.cummax(1), lambda: X.cummin(axis=1), lambda: X.std(), lambda: X.var(dim=0),
    lambda: tn.std(X, axis=1), lambda: tn.var_mean(X), lambda: X.split(2), lambda: tn.split(Y, [1]), lambda: X.repeat(2, 1),
    lambda: X.nonzero(), lambda: tn.meshgrid(Y, Y), lambda: tn.equal(X, X), lambda: tn.svd(X), lambda: X.svd(), lambda: tn.lu(X),
    lambda: tn.Tensor(np.ones(2)), lambda: CUBE[0, :, [0, 1]], lambda: CUBE[0, ..., AT], lambda: stored(tn.ones(2, 3, 2)),
    lambda: tn.triu_indices(3, 3), lambda: tn.tril_indices(3, 2), lambda: setattr(nn.Module(), "x", [nn.Linear(2, 2)]),
    lambda: setattr(nn.Module(), "x", {"a": (1, [nn.Parameter(Y)])}), lambda: CUBE[None, 0, :, AT], lambda: CUBE[0, :, CUBE[0, 0] > 0],
    held(lambda y: y.zero_()), held(lambda y: y.__iadd__(1)), held(lambda y: y.copy_(y * 2), lambda x: x.view(-1)),
    held(lambda y: y.t_(), lambda x: x.T), held(lambda y: y[0].mul_(2), lambda x: x.chunk(2, 1)),
    held(lambda y: y.zero_(), lambda x: x.data.flatten()), held(nn.init.zeros_, lambda x: x.detach()[1:].unsqueeze(0)),
    held(lambda y: y["row"].zero_(), lambda x: {"row": x[:, 1]}), lambda: changed_rows(tn.ones(2, 2)),
    lambda: tn.jit(held(lambda y: y.add_(1)))()]
SAME: list[Any] = [
    lambda: X.max(), lambda: X.max(axis=(0, 1)), lambda: X.argmax(1), lambda: X.argsort(1), lambda: X.std(unbiased=False),
    lambda: X.var(correction=1), lambda: X.split_with_sizes([1, 1]), lambda: X.tile(2, 1), lambda: X.nonzero(as_tuple=False),
    lambda: tn.meshgrid(Y, Y, indexing="ij"), lambda: X == X, lambda: X.cummax(1, return_indices=True), lambda: X.sum(dim=1),
    lambda: tn.linalg.svd(X), lambda: tn.linalg.svdvals(X), lambda: tn.linalg.lu_factor(X @ X.T), lambda: tn.Tensor([1.0]),
    lambda: tn.Tensor(np.ones(2, np.float32)), lambda: nn.Parameter(tn.tensor(np.ones(2))), lambda: CUBE[AT, :, 0], lambda: CUBE[:, 0, AT],
    lambda: CUBE[0, AT], lambda: CUBE[0, :, 1], lambda: CUBE[AT, :, AT], lambda: CUBE[:, AT],
    lambda: tn.jit(lambda x: x + HELD)(X), changed_at_once, held(lambda y: y.zero_(), lambda x: x[0] + 1), lambda: setattr(nn.Module(), "x", [tn.ones(2)]), lambda: nn.Sequential(nn.ReLU()),
    lambda: setattr(nn.Module(), "x", nn.ModuleList([nn.Linear(2, 2)])),
    lambda: tn.cross_entropy(X, tn.tensor([0, 1])), lambda: tn.max(X, X)]       # Tenon's own calls mean what they say


def warned(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found, tn.debug.porting("torch"):
        warnings.simplefilter("always")
        call()
    assert all(w.category is PortingWarning and w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


@pytest.mark.parametrize("call", DIFFERENT)
def test_a_call_that_means_another_thing_is_warned_about(call: Any) -> None:
    found = warned(call)
    assert len(found) == 1 and "PyTorch gives" in found[0] and "; write " in found[0]


@pytest.mark.parametrize("call", SAME)
def test_a_call_that_means_the_same_is_not(call: Any) -> None:
    assert warned(call) == []


def test_once_a_line_in_captured_code_too_and_not_afterwards() -> None:
    def three() -> None:
        for _ in range(3):
            X.std()
    assert len(warned(three)) == 1
    jitted = tn.jit(lambda x: x.std() * 2)
    assert len(warned(lambda: [jitted(X), jitted(X)])) == 1
    assert warned(lambda: warned(X.std)) == []      # the inner one is told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert X.std().item() > 0 and not hasattr(vars(Operators)["std"], "__wrapped__")


def test_names_and_libraries() -> None:
    assert all(hasattr(tn, name) for name in DIFFERENCES.keys() - METHODS)
    with pytest.raises(ArgumentError, match="'caffe' are not known"), tn.debug.porting("caffe"):
        pass
    with pytest.raises(ZeroDivisionError), tn.debug.porting():
        raise ZeroDivisionError
    assert warned(lambda: None) == []


def test_two_names_for_the_rows_of_one_tensor_are_warned_about_anywhere() -> None:
    def eager(x: Any) -> Any:
        _, places = tn.max(x.abs(), 1)
        return places

    @tn.jit
    def captured(x: Any) -> Any:
        total = x.sum()
        if total > 0:
            _, total = (x + 1).sort(dim=1)
        return total

    def rows(x: Any) -> Any:
        low, high = x.min(1).unbind()
        first, second = x.max(1) + 1
        for _ in x.max(1):
            low, *more = x.max(1)
        return low + high + first + second, tuple(x.max(1)), more
    for called, name in ((eager, "max"), (captured, "sort")):
        with pytest.warns(PortingWarning, match=f"^{name}: two names get the rows") as found:
            called(X)
        assert [w.filename for w in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows(X)
