"""A sharding: which axes of a tensor are split over which axes of a mesh.

    Sharding(mesh, ("data", None))            # rows over "data", columns whole
    Sharding(mesh, (("data", "model"), None)) # rows over both: "data" is the coarser division
    Sharding(mesh, ())                        # everything everywhere; entries that are left out are None

Sizes need not divide: as `numpy.array_split` does, the first `n % parts` parts have one element more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.errors import ArgumentError, ShapeError
from tenon.ops.communicator import part
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh

Entry = str | tuple[str, ...] | None
Spec = tuple[Entry, ...]
Axes = tuple[str, ...]          # the mesh axes that split one axis, the coarsest first


def entry_axes(entry: Entry) -> Axes:
    """The mesh axes of an entry of a spec, as a tuple."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def part_bounds(size: int, parts: int, place: int) -> tuple[int, int]:
    """Where a part of an axis begins and ends.

    >>> from tenon.sharding.sharding import part_bounds
    >>> [part_bounds(7, 3, place) for place in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    found = part(size, parts, place)
    return found.start, found.stop


@dataclass(frozen=True)
class Sharding:
    """What each rank of a mesh has of a tensor.

    Raises ArgumentError for an axis that the mesh does not have, and for one that splits twice.

    >>> from tenon.sharding.mesh import Mesh
    >>> from tenon.sharding.sharding import Sharding
    >>> sharding = Sharding(Mesh({"data": 2, "model": 2}), ("data", None))
    >>> sharding.local_shape((5, 3), 0), sharding.slices((5, 3), 3)
    ((3, 3), (slice(3, 5, None), slice(0, 3, None)))
    """

    mesh: Mesh
    spec: Spec
    at: tuple[tuple[str, int], ...] = ()        # (mesh axis, place): ranks at other places of it have nothing

    def __init__(self, mesh: Mesh, spec: Sequence[Entry] = (), at: Sequence[tuple[str, int]] = ()):
        if not isinstance(mesh, Mesh):
            raise ArgumentError(f"Sharding: a Mesh is expected, not {type(mesh).__name__}",
                                hint='tn.distributed.Mesh({"data": 2})')
        if isinstance(spec, str) or not isinstance(spec, (tuple, list)):
            raise ArgumentError(f"Sharding: a tuple with an entry an axis is expected, not {spec!r}",
                                hint='Sharding(mesh, ("data", None))')
        entries = tuple(map(_entry, spec))
        mesh.check_axes([name for entry in entries for name in entry_axes(entry)])
        object.__setattr__(self, "mesh", mesh)
        object.__setattr__(self, "spec", entries)
        mesh.check_axes([name for name, _ in at])
        object.__setattr__(self, "at", tuple(at))

    @property
    def is_replicated(self) -> bool:
        """Whether every rank has everything."""
        return not self.at and all(self.mesh.parts(entry_axes(entry)) == 1 for entry in self.spec)

    @property
    def everywhere(self) -> Sharding:
        """The same, with what each rank would have that has nothing."""
        return Sharding(self.mesh, self.spec) if self.at else self

    def axes(self, ndim: int) -> tuple[Axes, ...]:
        """For each axis of a tensor, the mesh axes that split it.  Raises ShapeError for too many entries."""
        if len(self.spec) > ndim:
            raise ShapeError(f"the sharding {self.spec!r} has {len(self.spec)} entries, and the tensor {ndim} axes",
                             hint="give an entry an axis: a name of a mesh axis, a tuple of names, or None")
        return tuple(map(entry_axes, self.spec)) + ((),) * (ndim - len(self.spec))

    def with_entries(self, ndim: int) -> Sharding:
        """The same for tensors of so many axes, with an entry for each: equal ones are written alike then."""
        return self if len(self.spec) == ndim else Sharding(self.mesh, self.axes(ndim), self.at)

    def slices(self, global_shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """Where the part of a rank lies in the whole tensor."""
        bounds = (part_bounds(size, self.mesh.parts(over), self.mesh.place(rank, over))
                  for size, over in zip(global_shape, self.axes(len(global_shape)), strict=True))
        return tuple(slice(start, stop) for start, stop in bounds)

    def local_shape(self, global_shape: Sequence[int], rank: int) -> tuple[int, ...]:
        """The shape of the part of a rank."""
        return tuple(x.stop - x.start for x in self.slices(global_shape, rank))

    def owners(self, global_shape: Sequence[int]) -> dict[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """For each part (where it begins and ends along each axis) the ranks that have it."""
        found: dict[tuple[tuple[int, int], ...], tuple[int, ...]] = {}
        for rank in range(self.mesh.size):
            if any(self.mesh.coordinates(rank)[name] != place for name, place in self.at):
                continue
            part = tuple((s.start, s.stop) for s in self.slices(global_shape, rank))
            found[part] = (*found.get(part, ()), rank)
        return found

    def __repr__(self) -> str:
        return f"Sharding({self.mesh!r}, {self.spec!r}{f', at={self.at!r}' if self.at else ''})"


def _entry(entry: object) -> Entry:
    if entry is None or isinstance(entry, str):
        return entry
    if isinstance(entry, (tuple, list)) and all(isinstance(name, str) for name in entry):
        names = tuple(entry)
        return None if not names else names[0] if len(names) == 1 else names
    raise ArgumentError(f"Sharding: {entry!r} is no entry of a spec",
                        hint="an entry is the name of a mesh axis, a tuple of names, or None")
