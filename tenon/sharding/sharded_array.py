"""An array in parts: each rank of a mesh has the one that a sharding gives it.

    split = split_array(array, Sharding(mesh, ("data", None)))
    split.shards[1]             # the part of rank 1
    split.full()                # all parts, joined
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tenon.errors import CommunicationError
from tenon.sharding.sharding import Sharding
from tenon.types import DTYPE_OF, DType


class ShardedArray:
    """The parts of an array; those of other processes are not here."""

    __slots__ = ("dtype", "shape", "sharding", "shards")

    def __init__(self, shape: tuple[int, ...], dtype: DType, sharding: Sharding, shards: Mapping[int, np.ndarray]):
        self.shape, self.dtype, self.shards = shape, dtype, dict(shards)
        self.sharding = sharding.with_entries(len(shape))

    @property
    def is_here(self) -> bool:
        """Whether every part is in this process."""
        return all(any(rank in self.shards for rank in ranks) for ranks in self.sharding.owners(self.shape).values())

    def full(self) -> np.ndarray:
        """All parts, joined.  Raises CommunicationError where some are in other processes."""
        out = np.empty(self.shape, self.dtype.numpy)
        for part, ranks in self.sharding.owners(self.shape).items():
            rank = next((rank for rank in ranks if rank in self.shards), None)
            if rank is None:
                raise CommunicationError(
                    f"a tensor {self.dtype.short}{list(self.shape)} split by {self.sharding.spec!r} is in parts, of "
                    f"which this process has {len(self.shards)} of {self.sharding.mesh.size}",
                    hint="tn.distributed.gather(x), called by all processes, joins them")
            out[tuple(slice(*bounds) for bounds in part)] = self.shards[rank]
        return out

    def zeros(self) -> ShardedArray:
        """Zeros of this shape, split so."""
        shards = {rank: np.zeros_like(part) for rank, part in self.shards.items()}
        return ShardedArray(self.shape, self.dtype, self.sharding, shards)

    def __repr__(self) -> str:
        return f"<{self.dtype.short}{list(self.shape)} split by {self.sharding!r}>"


def split_array(array: np.ndarray, sharding: Sharding, ranks: Iterable[int]) -> ShardedArray:
    """The parts of an array that these ranks have, in memory of their own."""
    shards = {rank: np.ascontiguousarray(array[sharding.slices(array.shape, rank)]) for rank in ranks}
    own = {rank: part.copy() if np.shares_memory(part, array) else part for rank, part in shards.items()}
    return ShardedArray(array.shape, DTYPE_OF[array.dtype], sharding, own)


def part_for(array: np.ndarray | ShardedArray, sharding: Sharding | None, rank: int) -> np.ndarray:
    """What a rank has of an array under a sharding: a view where the array is whole."""
    if isinstance(array, ShardedArray):
        if array.sharding == sharding and rank in array.shards:
            return array.shards[rank]
        array = array.full()
    return array if sharding is None else array[sharding.slices(array.shape, rank)]
