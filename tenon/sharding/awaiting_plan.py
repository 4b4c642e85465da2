"""Tensors of which a plan is to say how they are split: at the first call of a step on their mesh that reads them.

    net = tn.distributed.shard(net, mesh, plan="auto")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

from tenon.sharding.mesh import Mesh

_awaiting: dict[Mesh, WeakValueDictionary[int, Any]] = {}       # they stay here, for the rows of other steps


def await_plan(tensors: Iterable[Any], mesh: Mesh) -> None:
    """Let the first step on the mesh that reads one of the tensors say how they are split."""
    _awaiting.setdefault(mesh, WeakValueDictionary()).update((id(x), x) for x in tensors)


def is_awaiting(x: Any, mesh: Mesh) -> bool:
    """Whether a plan for this mesh is to say how a tensor is split, or has said so."""
    return mesh in _awaiting and _awaiting[mesh].get(id(x)) is x
