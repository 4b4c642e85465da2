"""A collective and the devices that take part -> seconds, by the models of latency and bandwidth.

    seconds = messages * latency + bytes / bandwidth

R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005: rings for
long messages, recursive halving and doubling for short ones.  Where several levels join the devices, a ring goes
through all of them, or each level goes on with what the one before has scattered; the fastest is taken.
"""

from __future__ import annotations

from math import ceil, log2

from tenon.errors import ArgumentError
from tenon.planning.device_group import DeviceGroup


def collective_seconds(kind: str, size: float, group: DeviceGroup) -> float:
    """How long a collective of `size` bytes takes: those of a rank's whole array, before or after.

    Raises ArgumentError for a kind that is not known.
    """
    if kind not in MODELS:
        raise ArgumentError(f"planning: no cost of a collective {kind!r}", hint=f"one of {', '.join(MODELS)}")
    return MODELS[kind](size, group) if group.size > 1 else 0.0


def sent_bytes(kind: str, size: float, devices: int) -> float:
    """The bytes that each device sends in a collective, as a ring has it."""
    if devices == 1 or kind == "barrier":
        return 0.0
    part = (devices - 1) / devices
    return size * {"all_reduce": 2 * part, "broadcast": 1.0, "permute": 1.0, "send": 1.0}.get(kind, part)


def send(size: float, group: DeviceGroup) -> float:
    """One message between the furthest two devices."""
    level = group.levels[group.outermost]
    return level.latency + size / level.rate


def scattered(size: float, group: DeviceGroup) -> float:
    """Reduce-scatter, and all-gather, which is its reverse."""
    n = group.size
    latency = group.latency * min(n - 1, ceil(log2(n)))
    ring = latency + (n - 1) / n * size / group.rate
    return min(ring, _by_level(size, group))


def _by_level(size: float, group: DeviceGroup) -> float:
    """Each level scatters what the one before has left to a device."""
    total = 0.0
    for level, span in zip(group.levels, group.spans, strict=True):
        total += ceil(log2(span)) * level.latency + (span - 1) / span * size / level.rate
        size /= span
    return total


def all_reduce(size: float, group: DeviceGroup) -> float:
    """Reduce-scatter and all-gather; or, for few bytes, all of them doubled along a tree."""
    return min(2 * scattered(size, group), ceil(log2(group.size)) * (group.latency + size / group.rate))


def all_to_all(size: float, group: DeviceGroup) -> float:
    """Every device sends a part to each other one, those far away by its own way out."""
    total, inside = group.latency * ceil(log2(group.size)), 1
    for level, span in zip(group.levels, group.spans, strict=True):
        total += size * (span - 1) * inside / group.size / level.rate
        inside *= span
    return total


def broadcast(size: float, group: DeviceGroup) -> float:
    """Scatter and all-gather for long messages, a tree for short ones."""
    return min(2 * scattered(size, group), ceil(log2(group.size)) * (group.latency + size / group.rate))


def barrier(size: float, group: DeviceGroup) -> float:
    """A message up a tree, and one down."""
    return 2 * ceil(log2(group.size)) * group.latency


MODELS = {"all_reduce": all_reduce, "all_gather": scattered, "reduce_scatter": scattered, "all_to_all": all_to_all,
          "broadcast": broadcast, "permute": send, "send": send, "barrier": barrier}
