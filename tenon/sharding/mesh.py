"""A mesh: devices (ranks) in a grid with named axes.

    mesh = Mesh({"data": 2, "model": 3})
    mesh.coordinates(4)            # {"data": 1, "model": 1}: the last axis varies fastest
    mesh.group(4, ("model",))      # (3, 4, 5): the ranks that differ from 4 along "model" alone
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from tenon.errors import ArgumentError
from tenon.records import dataclass

MICRO_AXIS = "micro"     # an axis whose places one device takes in turn; it has the sums of all (`tenon.pipelining`)


@dataclass(frozen=True)
class Mesh:
    """Ranks 0 .. size - 1 in a grid, row-major: `Mesh({"data": 2, "model": 2})`.

    Raises ArgumentError for sizes that are no positive whole numbers, for names that are no identifiers, and, where
    `devices` is given, for sizes that do not multiply out to it.

    >>> from tenon.sharding.mesh import Mesh
    >>> mesh = Mesh({"data": 2, "model": 3})
    >>> mesh.size, mesh.coordinates(4), mesh.group(4, ("data",))
    (6, {'data': 1, 'model': 1}, (1, 4))
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]

    def __init__(self, sizes: Mapping[str, int], devices: int | None = None):
        if not isinstance(sizes, Mapping):
            raise ArgumentError(f"Mesh: sizes by name are expected, not {sizes!r}", hint='Mesh({"data": 2})')
        if not sizes:
            raise ArgumentError("Mesh: there are no axes", hint='Mesh({"data": 2}); Mesh({"data": 1}) is one device')
        for name, size in sizes.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ArgumentError(f"Mesh: an axis is called {name!r}, which is no name", hint='Mesh({"data": 2})')
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ArgumentError(f"Mesh: the size of axis {name!r} is {size!r}, which is no positive whole number")
        object.__setattr__(self, "axes", tuple(sizes))
        object.__setattr__(self, "shape", tuple(sizes.values()))
        if devices is not None:
            self.check_devices(devices)

    def check_devices(self, devices: int) -> None:
        """Raise ArgumentError unless there is one device a place of the mesh."""
        if self.size != devices:
            product = " * ".join(map(str, self.shape)) or "1"
            raise ArgumentError(f"{self!r} has {product} = {self.size} places, and there are {devices} devices",
                                hint=f"choose sizes whose product is {devices}, or start {self.size} processes")

    def without(self, name: str) -> Mesh:
        """The ranks at one place along an axis: a mesh of the others, of one rank where there are none."""
        rest = {other: size for other, size in zip(self.axes, self.shape, strict=True) if other != name}
        found = Mesh(rest or {name: 1})
        if not rest:
            object.__setattr__(found, "axes", ())
            object.__setattr__(found, "shape", ())
        return found

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(self.shape)

    def axis_size(self, name: str) -> int:
        """How many ranks lie along an axis.  Raises ArgumentError for an axis that there is not."""
        self.check_axes((name,))
        return self.shape[self.axes.index(name)]

    def parts(self, over: Sequence[str]) -> int:
        """How many parts an axis has that is split over these mesh axes."""
        return math.prod(map(self.axis_size, over))

    def check_axes(self, over: Sequence[str]) -> None:
        """Raise ArgumentError for an axis that the mesh does not have, or that is named twice."""
        for name in over:
            if name not in self.axes:
                raise ArgumentError(f"no axis {name!r} in {self!r}",
                                    hint=f"its axes are {', '.join(map(repr, self.axes)) or 'none'}")
        if len(set(over)) < len(over):
            twice = next(name for k, name in enumerate(over) if name in over[:k])
            raise ArgumentError(f"axis {twice!r} of {self!r} is named twice", hint="a mesh axis splits one axis, once")

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank stands along each axis.  Raises ArgumentError for a rank that is not in the mesh."""
        self._check_rank(rank)
        found = {}
        for name, size in zip(reversed(self.axes), reversed(self.shape), strict=True):
            rank, found[name] = divmod(rank, size)
        return {name: found[name] for name in self.axes}

    def rank_at(self, coordinates: Mapping[str, int]) -> int:
        """The rank that stands there; 0 along the axes that are not named."""
        self.check_axes(tuple(coordinates))
        rank = 0
        for name, size in zip(self.axes, self.shape, strict=True):
            place = coordinates.get(name, 0)
            if not 0 <= place < size:
                raise ArgumentError(f"{self!r}: {place} is no place along {name!r}, which has {size}")
            rank = rank * size + place
        return rank

    def group(self, rank: int, over: Sequence[str]) -> tuple[int, ...]:
        """The ranks that differ from `rank` along these axes only; in order, the last axis of `over` fastest."""
        self.check_axes(over)
        here = self.coordinates(rank)
        places = itertools.product(*(range(self.axis_size(name)) for name in over))
        return tuple(self.rank_at({**here, **dict(zip(over, place, strict=True))}) for place in places)

    def place(self, rank: int, over: Sequence[str]) -> int:
        """Which part a rank has of an axis that is split over these mesh axes."""
        self.check_axes(over)
        here, found = self.coordinates(rank), 0
        for name in over:
            found = found * self.axis_size(name) + here[name]
        return found

    def _check_rank(self, rank: int) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ArgumentError(f"no rank {rank!r} in {self!r}", hint=f"its ranks are 0 to {self.size - 1}")

    def __repr__(self) -> str:
        return f"Mesh({dict(zip(self.axes, self.shape, strict=True))})"
