"""A graph and some devices -> which node is computed where, so that all are done soonest, by the model of their costs.

    plan = place(graph, ("cpu", "cpu:1"), rates)
    plan.placement, plan.order, plan.seconds, plan.alone

List scheduling: the units of the graph, those with the longest way to the end first, each on the device where it ends
earliest (H. Topcuoglu, S. Hariri, M. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", 2002).  Then local search: one unit after the other is moved to another device, as long as that helps.  The
best single device, with all threads, is among what is compared, so a plan is never worse than that in its own estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tenon.graph.ir import Graph, Node
from tenon.graph.partition import has_effect
from tenon.placement.device_schedule import DeviceSchedule, PlaceUnit, simulate, units_of
from tenon.placement.device_timeline import DevicesTimeline
from tenon.placement.place_costs import PlaceCosts, Rates
from tenon.placement.placement import Placement
from tenon.records import dataclass, replace

SEARCH_SECONDS = 2.0        # of local search at most
MAX_ROUNDS = 8              # over all units


@dataclass(frozen=True, eq=False)
class PlacePlan:
    """Where the nodes of `graph` are, which has them in the order in which devices start them; what that takes, what
    the best single device takes with all threads, and what each device does when."""

    graph: Graph
    placement: Placement
    seconds: float
    alone: float
    timeline: DevicesTimeline

    @property
    def is_cut(self) -> bool:
        """Whether more than one device takes part."""
        return len(set(self.placement.of.values())) > 1


def place(graph: Graph, names: Sequence[str], rates: Rates, apart: bool = False) -> PlacePlan:
    """The best plan that is found for these devices; parameters are there wherever they are read.

    Devices share the threads, or each has as many where they are `apart`: processes.
    """
    count = len(names) if apart else min(len(names), max(1, rates.threads))      # more have no core of their own
    whole = PlaceCosts(rates, rates.threads)
    shared = whole if apart else PlaceCosts(rates, max(1, rates.threads // count))
    units = units_of(graph.nodes, shared, [node for node in graph.nodes if has_effect(node)])
    alone = simulate(units_of(graph.nodes, whole), *_on_one(graph, whole), 1, whole)
    best = simulate(*_on_first(units), count, shared)
    if count > 1 and len(units) > 1:
        best = _search(units, _listed(units, count, shared), count, shared)
    seconds = best.seconds + rates.start
    if alone.seconds <= seconds:
        placement = Placement(tuple(names), dict.fromkeys(graph.nodes, 0), (None,) * len(graph.params))
        spans = simulate(units_of(graph.nodes, whole), *_on_one(graph, whole), 1, whole, spans=True).spans
        return PlacePlan(graph, _with_inner(placement), alone.seconds, alone.seconds,
                         DevicesTimeline("planned", tuple(names[:1]), spans))
    drawn = simulate(units, best.order, best.devices, count, shared, spans=True)
    nodes = tuple(node for k in best.order for node in units[k].nodes)
    of = {node: best.devices[k] for k in best.order for node in units[k].nodes}
    return PlacePlan(replace(graph, nodes=nodes), _with_inner(Placement(tuple(names), of, (None,) * len(graph.params))),
                     seconds, alone.seconds, DevicesTimeline("planned", tuple(names), drawn.spans))


def planned_as(graph: Graph, names: Sequence[str], order: Sequence[int], ranks: Sequence[int]) -> PlacePlan:
    """The plan with the nodes in this order, by their places in the graph, each where `ranks` says; it has no times."""
    nodes = tuple(graph.nodes[k] for k in order)
    placement = Placement(tuple(names), dict(zip(nodes, ranks, strict=True)), (None,) * len(graph.params))
    return PlacePlan(replace(graph, nodes=nodes), _with_inner(placement), 0.0, 0.0,
                     DevicesTimeline("planned", tuple(names), ()))


def round_robin(graph: Graph, names: Sequence[str], rates: Rates) -> DeviceSchedule:
    """Units in turn on one device after the other: what a plan is compared with."""
    count = min(len(names), max(1, rates.threads))
    costs = PlaceCosts(rates, max(1, rates.threads // count))
    units = units_of(graph.nodes, costs, [node for node in graph.nodes if has_effect(node)])
    order = _priority(units, costs)
    devices = [0] * len(units)
    for turn, number in enumerate(order):
        devices[number] = turn % count
    return simulate(units, order, devices, count, costs)


def _on_one(graph: Graph, costs: PlaceCosts) -> tuple[Sequence[int], Sequence[int]]:
    count = len(units_of(graph.nodes, costs))
    return range(count), [0] * count


def _on_first(units: Sequence[PlaceUnit]) -> tuple[Sequence[PlaceUnit], Sequence[int], Sequence[int]]:
    return units, range(len(units)), [0] * len(units)


def _with_inner(placement: Placement) -> Placement:
    """The nodes of branches and loops where these are."""
    of: dict[Node, int] = {}

    def enter(node: Node, rank: int) -> None:
        if node.graphs:
            for graph in node.graphs:
                for inner in graph.nodes:
                    enter(inner, rank)
        of[node] = rank
    for node, rank in placement.of.items():
        enter(node, rank)
    return replace(placement, of=of)


# ---------------------------------------------------------------- list scheduling

def _priority(units: Sequence[PlaceUnit], costs: PlaceCosts) -> list[int]:
    """The units, those with the longest way to the end first; none before what it reads."""
    way = [unit.seconds for unit in units]
    for unit in reversed(_topological(units)):
        for value, maker in unit.reads:
            way[maker] = max(way[maker], units[maker].seconds + costs.copy(value) + costs.travel(value)
                             + way[unit.number])
        for k in unit.after:
            way[k] = max(way[k], units[k].seconds + way[unit.number])
    place = {unit.number: k for k, unit in enumerate(_topological(units))}
    return sorted(range(len(units)), key=lambda k: (-way[k], place[k]))


def _topological(units: Sequence[PlaceUnit]) -> list[PlaceUnit]:
    found: list[PlaceUnit] = []
    seen: set[int] = set()
    for unit in units:
        stack = [(unit, False)]
        while stack:
            one, is_done = stack.pop()
            if is_done:
                found.append(one)
            elif one.number not in seen:
                seen.add(one.number)
                stack.append((one, True))
                stack += [(units[k], False) for k in (*(k for _, k in one.reads), *one.after)]
    return found


def _listed(units: Sequence[PlaceUnit], count: int, costs: PlaceCosts) -> DeviceSchedule:
    """Each unit on the device where it ends earliest, given those before it; effects on the first."""
    order = _priority(units, costs)
    devices, ends, free = [0] * len(units), [0.0] * len(units), [0.0] * count
    for number in order:
        unit = units[number]
        choices = []
        for device in range(1 if _has_effects(unit) else count):
            ready = max([free[device], *(ends[k] for k in unit.after), *(
                ends[k] + (0.0 if devices[k] == device else 2 * costs.copy(x) + costs.travel(x))
                for x, k in unit.reads)])
            choices.append((ready + unit.seconds, device))
        ends[number], devices[number] = min(choices)
        free[devices[number]] = ends[number]
    return simulate(units, order, devices, count, costs)


def _has_effects(unit: PlaceUnit) -> bool:
    return any(map(has_effect, unit.nodes))


def _search(units: Sequence[PlaceUnit], start: DeviceSchedule, count: int, costs: PlaceCosts,
            clock: Callable[[], float] = time.monotonic) -> DeviceSchedule:
    """Move units to other devices while that helps, the longest first."""
    end, order = clock() + SEARCH_SECONDS, _priority(units, costs)
    best = start
    for _ in range(MAX_ROUNDS):
        before = best.seconds
        for number in sorted(range(len(units)), key=lambda k: -units[k].seconds):
            if _has_effects(units[number]):
                continue
            for device in range(count):
                if clock() > end:
                    return best
                if device != best.devices[number]:
                    moved = [*best.devices]
                    moved[number] = device
                    found = simulate(units, order, moved, count, costs)
                    best = found if found.seconds < best.seconds else best
        if best.seconds >= before:
            break
    return best
