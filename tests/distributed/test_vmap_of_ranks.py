"""Collectives under tn.vmap: between devices example by example, or between the examples of a mesh axis."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from distributed.test_local_transport import on_ranks
from tenon import distributed as dist
from tenon.errors import ArgumentError

COUNT, OVER = 3, ("data",)
CASES: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda x: dist.all_reduce(x),
    "max": lambda x: dist.all_reduce(x, op="max"),
    "all_gather": lambda x: dist.all_gather(x, axis=1, over=OVER, size=12),
    "reduce_scatter": lambda x: dist.reduce_scatter(x, axis=0, over=OVER, size=2),
    "least": lambda x: dist.reduce_scatter(x, axis=0, over=OVER, size=2, op="min"),
    "all_to_all": lambda x: dist.all_to_all(x, split=0, concat=1, over=OVER, split_size=2, concat_size=12),
    "there and back": lambda x: dist.all_to_all(x, split=0, concat=0, over=OVER, split_size=2, concat_size=6),
    "broadcast": lambda x: dist.collective_broadcast(x, over=OVER, root=1),
    "permute": lambda x: dist.collective_permute(x, over=OVER, shift=1),
    "place": lambda x: x * dist.collective_place(over=OVER).astype(x.dtype),
    "of a constant": lambda x: x * dist.all_reduce(tn.ones(4, dtype=x.dtype)),
    "twice": lambda x: dist.all_reduce(tn.sin(dist.collective_permute(x, over=OVER, shift=-1)) * x),
}
XS = np.random.default_rng(0).standard_normal((COUNT, 6, 4))


def on_each_rank(f: Callable[[Any], Any]) -> list[np.ndarray]:
    found = on_ranks(COUNT, lambda speaker: f(tn.asarray(XS[speaker.rank])).numpy())
    assert all(isinstance(x, np.ndarray) for x in found), found
    return found


@pytest.mark.parametrize("run", [lambda f: f, tn.jit])
@pytest.mark.parametrize("name", CASES)
def test_the_examples_of_a_mesh_axis_are_its_ranks(name: str, run: Callable[..., Any]) -> None:
    found = run(tn.vmap(CASES[name], mesh_axis="data"))(tn.asarray(XS)).numpy()
    np.testing.assert_allclose(found, np.stack(on_each_rank(CASES[name])), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name != "place"])
def test_gradients_are_those_of_the_ranks(name: str) -> None:
    def gradient(x: Any) -> Any:
        return tn.grad(lambda x: (CASES[name](x) ** 2).sum())(x)
    found = tn.vmap(gradient, mesh_axis="data")(tn.asarray(XS)).numpy()
    np.testing.assert_allclose(found, np.stack(on_each_rank(gradient)), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("place", "of a constant")])
def test_a_batch_of_another_kind_stays_one(name: str) -> None:
    """Each rank has two examples; every collective is between devices, for both."""
    pairs = np.random.default_rng(1).standard_normal((COUNT, 2, 6, 4))
    whole = on_ranks(COUNT, lambda speaker: tn.vmap(CASES[name])(tn.asarray(pairs[speaker.rank])).numpy())
    for k in range(2):
        alone = on_ranks(COUNT, lambda speaker, k=k: CASES[name](tn.asarray(pairs[speaker.rank, k])).numpy())
        for x, y in zip(whole, alone, strict=True):
            np.testing.assert_array_equal(x[k], y)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="the parts of the examples have 12 elements, not 13"):
        tn.vmap(lambda x: dist.all_gather(x, axis=1, over=OVER, size=13), mesh_axis="data")(tn.asarray(XS))
    with pytest.raises(ArgumentError, match="root=3 is no place among 3 examples"):
        tn.vmap(lambda x: dist.collective_broadcast(x, over=OVER, root=3), mesh_axis="data")(tn.asarray(XS))
    with pytest.raises(ArgumentError, match="mesh_axis=0 is no name"):
        tn.vmap(lambda x: x, mesh_axis=0)
