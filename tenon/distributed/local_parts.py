"""What each process has of a tensor -> the tensor, in parts on the devices of a mesh; nothing is sent but its sizes.

    x = from_local(rows_of_my_files, mesh, ("data",))       # each process its own rows: a loader that reads a part
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.distributed.world import gather_texts
from tenon.eager.on_mesh import OnMesh
from tenon.errors import ArgumentError, CommunicationError, ShapeError
from tenon.records import dataclass
from tenon.runtime.transports import transport_for
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharded_array import ShardedArray
from tenon.sharding.sharding import Sharding
from tenon.tensor import Tensor, asarray
from tenon.types import as_dtype


@dataclass(frozen=True)
class LocalPart:
    """What a rank brings: its shape and type, and what tells its elements from others."""

    shape: tuple[int, ...]
    kind: str
    checksum: int


def from_local(parts: Any, mesh: Mesh, spec: Any) -> Tensor:
    """The tensor of which each process has a part, without a gradient.

    `parts` is the tensor of this process; where a process has several devices of the mesh, a list of one for each.
    `spec` says how the whole is split, as in `shard`.  All processes call this together, and the whole has as many
    elements along an axis as all parts have.  Parts are as even as those of `numpy.array_split`: the first have one
    element more.  Ranks that stand alike along the axes of `spec` bring equal parts.

    Raises ShapeError for parts that are uneven otherwise, ArgumentError for their number, and CommunicationError, on
    every rank, where ranks bring parts of other types, or unlike parts of one place.

    >>> mesh = tn.distributed.Mesh({"data": 2})
    >>> tn.distributed.from_local([tn.zeros(2, 3), tn.ones(1, 3)], mesh, ("data",))
    tensor([[0., 0., 0.],
            [0., 0., 0.],
            [1., 1., 1.]], split=('data', None))
    """
    if not isinstance(mesh, Mesh):
        raise ArgumentError(f"from_local: a mesh is expected, not {type(mesh).__name__}",
                            hint='tn.distributed.Mesh({"data": 2})')
    sharding, ranks = Sharding(mesh, spec), transport_for(mesh).ranks
    arrays = _arrays(parts, ranks)
    sharding.axes(arrays[0].ndim)       # raises where they are too many
    everybody = _everybody([LocalPart(x.shape, as_dtype(x.dtype).short, _checksum(x)) for x in arrays])
    shape = _whole_shape(everybody, sharding)
    _check_alike(everybody, sharding, shape)
    shards = {rank: x.copy() for rank, x in zip(ranks, arrays, strict=True)}
    if sharding.is_replicated:
        return Tensor(next(iter(shards.values())))
    return Tensor(OnMesh(ShardedArray(shape, as_dtype(arrays[0].dtype), sharding, shards)))


def _arrays(parts: Any, ranks: Sequence[int]) -> list[np.ndarray]:
    """An array for each of this process's devices."""
    listed = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    if len(listed) != len(ranks):
        raise ArgumentError(f"from_local: {len(listed)} parts are given, and this process has {len(ranks)} devices of "
                            "the mesh", hint="give a list of tensors, one a device of this process")
    return [np.ascontiguousarray(asarray(x).numpy()) for x in listed]


def _checksum(x: np.ndarray) -> int:
    return zlib.crc32(x.tobytes())


def _everybody(mine: Sequence[LocalPart]) -> list[LocalPart]:
    """What all ranks bring, by rank."""
    texts = gather_texts(json.dumps([[x.shape, x.kind, x.checksum] for x in mine]))
    return [LocalPart(tuple(shape), kind, checksum) for text in texts for shape, kind, checksum in json.loads(text)]


def _whole_shape(parts: Sequence[LocalPart], sharding: Sharding) -> tuple[int, ...]:
    """The sizes of the whole tensor: along each axis, those of the parts of rank 0's group."""
    first, mesh = parts[0], sharding.mesh
    for rank, x in enumerate(parts):
        if len(x.shape) != len(first.shape) or x.kind != first.kind:
            raise CommunicationError(f"from_local: rank 0 brings {first.kind}{list(first.shape)}, rank {rank} "
                                     f"{x.kind}{list(x.shape)}", hint="parts have one type and one number of axes")
    return tuple(sum(parts[rank].shape[axis] for rank in mesh.group(0, over))
                 for axis, over in enumerate(sharding.axes(len(first.shape))))


def _check_alike(parts: Sequence[LocalPart], sharding: Sharding, shape: tuple[int, ...]) -> None:
    """Raise where a rank's part is not the one that a whole of this shape has there, or not its twin's."""
    for rank, x in enumerate(parts):
        if x.shape != (expected := sharding.local_shape(shape, rank)):
            raise ShapeError(f"from_local: rank {rank} brings {x.kind}{list(x.shape)}; of {list(shape)} split by "
                             f"{sharding.spec!r} it has {list(expected)}",
                             hint="parts are as even as can be, the first the longer ones: pad, drop or exchange rows")
    for ranks in sharding.owners(shape).values():
        for rank in ranks[1:]:
            if parts[rank] != parts[ranks[0]]:
                raise CommunicationError(f"from_local: ranks {ranks[0]} and {rank} have one part of {list(shape)}, "
                                         f"split by {sharding.spec!r}, and bring unlike ones",
                                         hint="name the mesh axis along which they differ in the spec")
