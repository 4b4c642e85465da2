"""The graph of a function without a mesh -> nothing, or the error that it speaks of one."""

from __future__ import annotations

import math

from tenon.errors import DevicePlanError
from tenon.graph.ir import Graph
from tenon.ops.sharding_annotation import with_sharding


def check_no_mesh_is_named(graph: Graph) -> None:
    """Raise DevicePlanError where a value is to be split over several devices: nothing would be."""
    for node in graph.nodes:
        for inner in node.graphs:
            check_no_mesh_is_named(inner)
        if node.op is with_sharding and math.prod(size for _, size in node.attrs["mesh"]) > 1:
            sizes = dict(node.attrs["mesh"])
            raise DevicePlanError(f"shard: {graph.name} splits a value over Mesh({sizes}), and runs on no mesh",
                                  where=node.loc, hint=f"@tn.jit(mesh=tn.distributed.Mesh({sizes}))")
