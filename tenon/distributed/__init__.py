"""Several devices, processes and machines: meshes, collectives, and how processes are started."""

import sys as _sys
from io import TextIOWrapper as _TextIOWrapper

from tenon.config import config as _config
from tenon.distributed.world import current_mesh, rank, set_mesh, size
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
           "collective_place", "current_mesh", "rank", "set_mesh", "size", "reduce_scatter"]

if _config().processes:
    for _stream in (_sys.stdout, _sys.stderr):
        if isinstance(_stream, _TextIOWrapper):         # lines of several processes meet in one stream
            _stream.reconfigure(line_buffering=True, write_through=False)
