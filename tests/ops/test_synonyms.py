"""Names and orders of arguments as PyTorch's users write them, by the one definition of each operator."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError
from tenon.graph.synonyms import SYNONYMS

X = tn.asarray(np.random.default_rng(0).standard_normal((3, 4)))
Y = tn.asarray(np.random.default_rng(1).standard_normal((2, 3, 4)))
AT, ROWS = tn.tensor([[0, 1], [1, 0], [3, 2]]), tn.tensor([0, 2])
NEW = tn.asarray(np.random.default_rng(2).standard_normal((3, 2)))
SAME = [
    (lambda: X.sum(dim=1), lambda: X.sum(axis=1)),
    (lambda: X.mean(dim=(0, 1), keepdim=True), lambda: X.mean(axis=(0, 1), keepdims=True)),
    (lambda: X.std(dim=0, unbiased=True), lambda: X.std(axis=0, correction=1)),
    (lambda: X.var(unbiased=False), lambda: X.var(correction=0)),
    (lambda: tn.cat([X, X], dim=1), lambda: tn.concat([X, X], axis=1)),
    (lambda: tn.stack([X, X], dim=2), lambda: tn.stack([X, X], axis=2)),
    (lambda: tn.chunk(X, 2, dim=1)[1], lambda: tn.chunk(X, 2, axis=1)[1]),
    (lambda: X.flatten(start_dim=0), lambda: X.flatten(0)),
    (lambda: X.norm(p=1, dim=1), lambda: X.norm(1, axis=1)),
    (lambda: tn.sum(input=X, dim=0), lambda: X.sum(axis=0)),
    (lambda: tn.matmul(input=X, other=X.T), lambda: X @ X.T),
    (lambda: X.triu(diagonal=1), lambda: X.triu(1)),
    (lambda: X.roll(shifts=1, dims=0), lambda: X.roll(1, 0)),
    (lambda: Y.permute(dims=(2, 0, 1)), lambda: Y.permute(2, 0, 1)),
    (lambda: Y.diagonal(dim1=1, dim2=2), lambda: Y.diagonal(axis1=1, axis2=2)),
    (lambda: Y.transpose(1, 2), lambda: Y.swapaxes(1, 2)),
    (lambda: Y.transpose(0, -1), lambda: Y.swapaxes(0, 2)),
    (lambda: tn.transpose(Y, dim0=0, dim1=2), lambda: Y.swapaxes(0, 2)),
    (lambda: X.transpose(0, 1), lambda: X.T),
    (lambda: X.transpose(-2, -1), lambda: X.T),
    (lambda: Y.swapaxes(axis0=0, axis1=1), lambda: Y.swapaxes(0, 1)),
    (lambda: Y.flip(0, 1), lambda: Y.flip((0, 1))),
    (lambda: Y.flip(dims=[0]), lambda: Y.flip(0)),
    (lambda: X.gather(1, AT), lambda: X.gather(AT, 1)),
    (lambda: tn.gather(X, dim=1, index=AT), lambda: X.gather(AT, 1)),
    (lambda: X.scatter(1, AT, NEW), lambda: X.scatter(AT, NEW, 1)),
    (lambda: X.scatter(dim=1, index=AT, value=5.0), lambda: X.scatter(AT, 5.0, 1)),
    (lambda: X.scatter_add(1, AT, NEW), lambda: X.scatter_add(AT, NEW, 1)),
    (lambda: X.scatter_reduce(1, AT, NEW, reduce="amax"), lambda: X.scatter_reduce(AT, NEW, 1, "max")),
    (lambda: X.index_select(1, ROWS), lambda: X.take(ROWS, axis=1)),
    (lambda: X.index_select(1, index=ROWS), lambda: X.take(ROWS, axis=1)),
    (lambda: X.index_add(0, ROWS, X[:2]), lambda: X.index_add(ROWS, X[:2])),
    (lambda: X.index_fill(1, ROWS, 2.0), lambda: X.index_fill(ROWS, 2.0, 1)),
    (lambda: tn.linspace(0, 1, steps=5), lambda: tn.linspace(0, 1, 5)),
    (lambda: tn.zeros(size=(2, 3)), lambda: tn.zeros(2, 3)),
]


@pytest.mark.parametrize("theirs, ours", SAME)
def test_both_ways_of_writing_give_the_same(theirs: Any, ours: Any) -> None:
    for _ in range(4):      # the later calls are remembered ones
        np.testing.assert_array_equal(theirs().numpy(), ours().numpy())
    np.testing.assert_allclose(tn.jit(theirs)().numpy(), ours().numpy(), rtol=1e-12)


def test_gradients_and_graphs_know_one_name() -> None:
    x = tn.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (x.sum(dim=1) ** 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[6.0, 6.0], [14.0, 14.0]]
    assert "axis=(1,)" in str(tn.jit(lambda x: x.sum(dim=1)).graph(X))


@pytest.mark.parametrize("call, message", [
    (lambda: X.sum(dim=0, axis=1), "'dim'"),
    (lambda: X.sum(axis=1, dim=0), "'dim'"),
    (lambda: X.sum(dims=0, dim=0), "'d"),
    (lambda: X.exp(dim=1), "no argument 'dim'"),
    (lambda: X.sum(dimension=0), "no argument 'dimension'"),
    (lambda: tn.cat([X], dim=0, axis=0), "dim"),
])
def test_what_is_given_twice_or_means_nothing_is_refused_by_its_own_name(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_every_synonym_leads_to_a_parameter_of_some_definition() -> None:
    names = {name for call in tn.__dict__.values() if hasattr(call, "signature") for name in call.signature.names}
    names |= {name for call in tn.__dict__.values() if (inner := getattr(call, "__wrapped__", None))
              for name in inner.__code__.co_varnames}
    assert [(theirs, ours) for theirs, ours in SYNONYMS.items() if not names & set(ours)] == []
