"""Ranks of a mesh -> a group of devices, as its messages see it: how many take part at each level of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, prod

import numpy as np

from tenon.errors import ArgumentError
from tenon.planning.cluster import Cluster, Interconnect
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh


@dataclass(frozen=True)
class DeviceGroup:
    """Devices that speak to each other: how many groups of each level take part in one of the next level.

    `spans` (8, 4): all 8 devices of each of 4 nodes.
    """

    levels: tuple[Interconnect, ...]
    spans: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many devices there are."""
        return prod(self.spans)

    @property
    def latency(self) -> float:
        """Seconds of a message along the slowest way."""
        return max((level.latency for level, span in zip(self.levels, self.spans, strict=True) if span > 1),
                   default=0.0)

    @property
    def rate(self) -> float:
        """Bytes a second around a ring through all devices: those of one group share its ways out."""
        return min((level.rate * prod(self.spans[:k]) for k, level in enumerate(self.levels) if self.spans[k] > 1),
                   default=inf)

    @property
    def outermost(self) -> int:
        """The level that a message between the furthest two goes over; -1 where there is one device."""
        return max((k for k, span in enumerate(self.spans) if span > 1), default=-1)


@lru_cache(maxsize=4096)
def device_group(cluster: Cluster, *axes: tuple[int, int]) -> DeviceGroup:
    """The group that device 0 is in, along mesh axes of this (size, distance between neighbours).

    Raises ArgumentError where the cluster has no such devices.
    """
    ranks = np.zeros(1, np.int64)
    for size, stride in axes:
        ranks = (ranks[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
    if ranks.max() >= cluster.devices:
        raise ArgumentError(f"the cluster {cluster.name!r} has {cluster.devices} devices, and {ranks.max() + 1} are "
                            "asked for", hint="a larger size of its last level in its file")
    spans, groups = [], ranks
    for level in cluster.levels:
        outer = np.unique(groups // level.size)
        spans.append(-(-len(groups) // len(outer)))
        groups = outer
    return DeviceGroup(cluster.levels, tuple(spans))


def groups_of(cluster: Cluster, mesh: Mesh) -> Callable[[tuple[str, ...]], DeviceGroup]:
    """What gives the group that device 0 speaks to along some axes of a mesh."""
    def group_of(over: tuple[str, ...]) -> DeviceGroup:
        along = (mesh.group(0, (name,)) for name in over)
        return device_group(cluster, *((len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 1) for ranks in along))
    return group_of
