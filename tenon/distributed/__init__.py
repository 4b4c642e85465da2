"""Several devices, processes and machines: meshes, collectives, and how processes are started."""

from tenon.ops.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    collective_broadcast,
    collective_permute,
    collective_place,
    reduce_scatter,
)
from tenon.sharding.mesh import Mesh

__all__ = ["Mesh", "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute",
           "collective_place", "reduce_scatter"]
