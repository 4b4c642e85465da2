"""A graph and a device for each part of it -> when each device does what: computed ahead, in the model of its costs.

    schedule = simulate(units, devices, costs)
    schedule.seconds, schedule.order, schedule.spans

Each device computes its units in one order of all, as a cut graph does (`placement.cut_by_device`).  A value is sent
when it is made, which takes the sender the time to copy it.  It is received when it is first read; while it travels
both compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tenon.graph.ir import Node, Value
from tenon.placement.device_timeline import DeviceSpan
from tenon.placement.place_costs import PlaceCosts
from tenon.records import dataclass


@dataclass(frozen=True, eq=False)
class PlaceUnit:
    """Nodes that stay together: what they take from other units, and from whom, what it costs to compute them."""

    number: int
    nodes: tuple[Node, ...]
    reads: tuple[tuple[Value, int], ...]        # a value, and the unit that makes it
    after: tuple[int, ...]                      # units that come before, of whom nothing is read
    seconds: float

    @property
    def name(self) -> str:
        """Its largest operator, as a rule the last one."""
        return self.nodes[-1].op.name if len(self.nodes) == 1 else f"{self.nodes[-1].op.name}+{len(self.nodes) - 1}"


@dataclass(frozen=True, eq=False)
class DeviceSchedule:
    """What each device does and when; `seconds` is the end of the last."""

    devices: tuple[int, ...]            # of each unit
    order: tuple[int, ...]              # of the units, by their start
    spans: tuple[DeviceSpan, ...]
    seconds: float


def simulate(units: Sequence[PlaceUnit], order: Sequence[int], devices: Sequence[int], count: int,
             costs: PlaceCosts, spans: bool = False) -> DeviceSchedule:
    """The schedule of units in this order, each on its device, of `count`."""
    free, ends = [0.0] * count, [0.0] * len(units)
    there: dict[tuple[Value, int], float] = {}
    readers = _readers(units, devices)
    found: list[DeviceSpan] = []
    starts: list[tuple[float, int]] = []
    for place, number in enumerate(order):
        unit, device = units[number], devices[number]
        now = max([free[device], *(ends[k] for k in unit.after)])
        for value, maker in unit.reads:
            if devices[maker] != device and (value, device) in there:
                arrived = there.pop((value, device))
                taken = max(now, arrived)
                if spans and arrived > now:
                    found.append(DeviceSpan(device, "wait", now, arrived, "wait"))
                now = taken + costs.copy(value)
                if spans:
                    found.append(DeviceSpan(device, f"recv {_name(value)}", taken, now, "recv"))
        end = now + unit.seconds
        if spans:
            found.append(DeviceSpan(device, unit.name, now, end, "compute", str(unit.nodes[-1].loc or "")))
        starts.append((now, place))
        ends[number] = end
        for value, to in readers.get(number, ()):
            sent = end + costs.copy(value)
            if spans:
                found.append(DeviceSpan(device, f"send {_name(value)}", end, sent, "send"))
            there[value, to] = sent + costs.travel(value)
            end = sent
        free[device] = end
    by_start = tuple(order[place] for _, place in sorted(starts))
    return DeviceSchedule(tuple(devices), by_start, tuple(found), max(free, default=0.0))


def _readers(units: Sequence[PlaceUnit], devices: Sequence[int]) -> Mapping[int, list[tuple[Value, int]]]:
    """What each unit sends, and to which devices: each once."""
    found: dict[int, dict[tuple[Value, int], None]] = {}
    for unit in units:
        to = devices[unit.number]
        for value, maker in unit.reads:
            if devices[maker] != to:
                found.setdefault(maker, {})[value, to] = None
    return {maker: list(sent) for maker, sent in found.items()}


def _name(x: Value) -> str:
    return str(x.type) if x.node is None else f"{x.node.op.name}: {x.type}"


# ---------------------------------------------------------------- units

def units_of(nodes: Sequence[Node], costs: PlaceCosts, effects: Sequence[Node] = ()) -> list[PlaceUnit]:
    """The nodes as units: what costs less than a message stays with what it is computed from, or with its one reader.

    So no unit waits for itself: a node joins the only unit that it reads, or a node that alone reads it.
    """
    owner: dict[Node, int] = {}
    groups: list[list[Node]] = []
    for node in nodes:
        makers = {owner[x.node] for x in node.uses() if x.node is not None and x.node in owner}
        small = costs.of(node) < costs.rates.message and not node.graphs and not node.op.effect
        joined = makers.pop() if small and len(makers) == 1 else len(groups)
        if joined == len(groups):
            groups.append([])
        groups[joined].append(node)
        owner[node] = joined
    return list(_units(groups, owner, costs, effects))


def _units(groups: Sequence[list[Node]], owner: Mapping[Node, int], costs: PlaceCosts,
           effects: Sequence[Node]) -> Iterator[PlaceUnit]:
    before = {after: owner[first] for first, after in pairwise(effects)}
    for number, group in enumerate(groups):
        reads = dict.fromkeys((x, owner[x.node]) for node in group for x in node.inputs
                              if isinstance(x, Value) and x.node is not None and owner[x.node] != number)
        after = {before[node] for node in group if node in before and before[node] != number}
        yield PlaceUnit(number, tuple(group), tuple(reads), tuple(sorted(after)), sum(map(costs.of, group)))
