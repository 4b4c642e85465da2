"""Several devices, processes and machines: meshes, collectives, plans, and how processes are started."""

import sys as _sys
from importlib import import_module as _import_module
from io import TextIOWrapper as _TextIOWrapper
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from tenon.config import config as _config
from tenon.distributed.explain_sharding import explain
from tenon.distributed.local_parts import from_local
from tenon.distributed.run_folder import RunFolder as Checkpoint
from tenon.distributed.shard import gather, shard
from tenon.distributed.sharded_files import load, save
from tenon.distributed.world import (
    current_mesh,
    destroy_process_group,
    init_process_group,
    is_available,
    is_initialized,
    rank,
    set_mesh,
    size,
)
from tenon.distributed.world import rank as get_rank
from tenon.distributed.world import size as get_world_size
from tenon.ops.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    collective_broadcast,
    collective_permute,
    collective_place,
    reduce_scatter,
)
from tenon.pipelining.pipelined import Pipeline
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Sharding

if _TYPE_CHECKING:
    from tenon.planning.cluster import load_cluster
    from tenon.planning.make_plan import plan
    from tenon.planning.parallel_sizes import ParallelSizes
    from tenon.planning.plan import Plan
    from tenon.planning.training_step import estimate_step
    from tenon.planning.transformer_model import TransformerModel

__all__ = [
    "Checkpoint",
    "Mesh",
    "ParallelSizes",
    "Pipeline",
    "Plan",
    "Sharding",
    "TransformerModel",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "collective_place",
    "current_mesh",
    "destroy_process_group",
    "estimate_step",
    "explain",
    "from_local",
    "gather",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_available",
    "is_initialized",
    "load",
    "load_cluster",
    "plan",
    "rank",
    "reduce_scatter",
    "save",
    "set_mesh",
    "shard",
    "size",
]

_LOADED_LATER = {"ParallelSizes": "parallel_sizes", "Plan": "plan", "TransformerModel": "transformer_model",
                 "estimate_step": "training_step", "load_cluster": "cluster", "plan": "make_plan"}


def __getattr__(name: str) -> _Any:
    """Planning is a third of a second of imports, which who only runs a step does not need."""
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"tenon.planning.{_LOADED_LATER[name]}"), name)

if _config().processes:
    for _stream in (_sys.stdout, _sys.stderr):
        if isinstance(_stream, _TextIOWrapper):         # lines of several processes meet in one stream
            _stream.reconfigure(line_buffering=True, write_through=False)
