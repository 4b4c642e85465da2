"""An annotation in a graph: how a value is to be split over the devices of a mesh (tenon.sharding reads it)."""

from __future__ import annotations

from typing import Any

from tenon.graph.op import Op
from tenon.ops.define import define
from tenon.types import TensorType

MeshSizes = tuple[tuple[str, int], ...]
SpecNames = tuple[tuple[str, ...], ...]     # the mesh axes that split each axis


def _type(x: TensorType, *, mesh: MeshSizes, spec: SpecNames) -> TensorType:
    return x


with_sharding: Op = define(
    "with_sharding", public=False, type=_type, ref=lambda x, mesh, spec: x, elementwise=True,
    compute=lambda s, i, x, mesh, spec: x(i),
    vjp=lambda g, y, x, mesh, spec: (with_sharding(g, mesh=mesh, spec=spec),),
    doc="The input unchanged, split over a mesh as `spec` says where the graph runs on that mesh; so is its gradient.",
    examples=['with_sharding(f32[4, 3], mesh=(("data", 2),), spec=(("data",), ())) -> f32[4, 3]'])


def annotated(x: Any, mesh: MeshSizes, spec: SpecNames) -> Any:
    """The tensor, marked to be split so."""
    return with_sharding(x, mesh=mesh, spec=spec)
