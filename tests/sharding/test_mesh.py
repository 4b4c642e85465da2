"""Meshes and shardings: who stands where, who has what, and what is refused."""

import itertools

import numpy as np
import pytest

from tenon.errors import ArgumentError, ShapeError
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Sharding, part_bounds


def test_ranks_are_row_major_and_round_trip() -> None:
    mesh = Mesh({"a": 2, "b": 3, "c": 2})
    assert [tuple(mesh.coordinates(r).values()) for r in range(12)] == list(itertools.product(*map(range, (2, 3, 2))))
    assert [mesh.rank_at(mesh.coordinates(r)) for r in range(12)] == list(range(12))


def test_a_group_differs_along_its_axes_only_in_order() -> None:
    mesh, grid = Mesh({"a": 2, "b": 3, "c": 2}), np.arange(12).reshape(2, 3, 2)
    for rank in range(12):
        a, b, c = mesh.coordinates(rank).values()
        assert mesh.group(rank, ("b",)) == tuple(grid[a, :, c])
        assert mesh.group(rank, ("c", "a")) == tuple(grid[:, b, :].T.ravel())
        assert mesh.group(rank, ()) == (rank,)
        assert mesh.group(rank, ("c", "a"))[mesh.place(rank, ("c", "a"))] == rank


@pytest.mark.parametrize("size", [0, 1, 2, 5, 7, 12, 13])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_parts_are_those_of_array_split(size: int, parts: int) -> None:
    expected = [len(x) for x in np.array_split(np.arange(size), parts)]
    bounds = [part_bounds(size, parts, place) for place in range(parts)]
    assert [stop - start for start, stop in bounds] == expected
    assert bounds[0][0] == 0 and bounds[-1][1] == size and all(a[1] == b[0] for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize("spec", [(), ("a",), (None, "b"), (("a", "b"),), (("b", "a"), None), ("b", "a")])
def test_parts_cover_the_tensor_once(spec: tuple[object, ...]) -> None:
    sharding, x = Sharding(Mesh({"a": 2, "b": 3}), spec), np.arange(35).reshape(7, 5)  # type: ignore[arg-type]
    seen = np.zeros((7, 5), int)
    for part, ranks in sharding.owners((7, 5)).items():
        region = tuple(slice(*bounds) for bounds in part)
        seen[region] += 1
        for rank in ranks:
            assert x[sharding.slices((7, 5), rank)].shape == sharding.local_shape((7, 5), rank) == x[region].shape
    assert (seen == 1).all()


def test_shardings_are_data() -> None:
    mesh = Mesh({"a": 2})
    assert Sharding(mesh, (("a",), [])) == Sharding(Mesh({"a": 2}), ("a", None))
    assert len({Sharding(mesh, ("a",)), Sharding(mesh, ["a"])}) == 1
    with pytest.raises(AttributeError):
        mesh.axes = ()  # type: ignore[misc]
    assert Sharding(mesh).is_replicated and Sharding(Mesh({"a": 1}), ("a",)).is_replicated
    assert not Sharding(mesh, ("a",)).is_replicated


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Mesh({"data": 0}), "size of axis 'data' is 0"),
    (lambda: Mesh({"data": True}), "size of axis 'data' is True"),
    (lambda: Mesh({"da ta": 2}), "which is no name"),
    (lambda: Mesh([2, 2]), "sizes by name"),  # type: ignore[arg-type]
    (lambda: Mesh({"data": 2, "model": 3}, devices=4), r"2 \* 3 = 6 places, and there are 4 devices"),
    (lambda: Mesh({"data": 2}).group(0, ("modle",)), r"no axis 'modle'.*"),
    (lambda: Mesh({"data": 2}).coordinates(2), "no rank 2"),
    (lambda: Mesh({"data": 2}).coordinates(-1), "no rank -1"),
    (lambda: Mesh({"data": 2}).rank_at({"data": 2}), "2 is no place"),
    (lambda: Sharding(Mesh({"data": 2}), ("model",)), "no axis 'model'"),
    (lambda: Sharding(Mesh({"data": 2}), ("data", "data")), "'data'.* is named twice"),
    (lambda: Sharding(Mesh({"data": 2}), (("data", "data"),)), "'data'.* is named twice"),
    (lambda: Sharding(Mesh({"data": 2}), "data"), "a tuple with an entry an axis"),
    (lambda: Sharding(Mesh({"data": 2}), (3,)), "3 is no entry"),  # type: ignore[arg-type]
    (lambda: Sharding("data", ()), "a Mesh is expected"),  # type: ignore[arg-type]
])
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()  # type: ignore[operator]


def test_more_entries_than_axes_are_refused() -> None:
    with pytest.raises(ShapeError, match="has 2 entries, and the tensor 1 axes"):
        Sharding(Mesh({"data": 2}), ("data", None)).slices((3,), 0)
