"""A graph whose parameters and moves say where values are -> the placement of its nodes, and the program that runs it.

    def f(x: f32[8], w: f32[8] @ cpu:1):
        v0: f32[8] @ cpu:1 = to_device(x, device="cpu:1")
        v1: f32[8] @ cpu:1 = add(v0, w)
        return v1

A node is where its result is; what is made from no tensor is made where it is read first.  A parameter on the first
device lies in memory that every logical device reads, so it is sent nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tenon.devices import HOST, Device
from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.ir import DEVICES, DONATED, UPDATES, Graph, Input, Node, Value
from tenon.graph.partition import map_graphs
from tenon.graph.value_devices import Devices, devices_of
from tenon.ops.transfer import to_device, to_device_of
from tenon.placement.cut_by_device import cut
from tenon.placement.open_calls import open_calls
from tenon.placement.placement import Placement
from tenon.program.backend_interface import Executable
from tenon.records import replace
from tenon.runtime.local_transport import LocalTransport
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.sharding.mesh import Mesh

Compile = Callable[[Graph, Device], Executable]


def placed_program(graph: Graph, compile: Compile) -> Executable:
    """What runs a graph that speaks of devices; `compile` makes the program of one of them."""
    known = set(devices_of(graph).values()) - {None}
    if len(known) == 1:         # nothing is cut
        return compile(silent(graph), Device(known.pop()))
    opened, placement = without_moves(replace(open_calls(graph), notes=graph.notes))
    made = {rank: DevicePart(compile(silent(part.graph), Device(placement.devices[rank])), part.arguments, part.results)
            for rank, part in cut(opened, placement).items()}
    return MultiDevice(graph, made, LocalTransport(Mesh({"devices": len(placement.devices)})),
                       dict(enumerate(placement.devices)))


def placement_of(graph: Graph) -> Placement:
    """Where the nodes of a graph are.  Raises DeviceError where an operator reads values of several devices."""
    known = devices_of(graph)
    names = [HOST, *sorted({x for x in known.values() if x is not None and x is not HOST}, key=_order)]
    rank = {name: k for k, name in enumerate(names)}
    of: dict[Node, int] = {}
    for node, readers in _with_readers(graph):
        found = [known.get(x) for x in node.outputs]
        device = next((d for d in found if d is not None), None) or _first(readers, known)
        of[node] = rank[device or HOST]
        known.update((x, device) for x in node.outputs if known.get(x) is None)     # for what it reads itself
    params = tuple(None if (d := known[p]) is HOST or d is None else rank[d] for p in graph.params)
    return Placement(tuple(map(str, names)), of, params)


def without_moves(graph: Graph) -> tuple[Graph, Placement]:
    """The graph in which values go straight to those that read them elsewhere, and where its nodes are.

    A move whose output is a result stays: the result is where it leads.
    """
    before = placement_of(graph)
    of: dict[Node, int] = {}

    def moved(inner: Graph) -> Graph:
        def visit(node: Node, inputs: tuple[Input, ...]) -> object:
            if node.op in (to_device, to_device_of) and node.output not in inner.results:
                return inputs[0]
            out = current_builder().emit(node.op, inputs, map_graphs(node.attrs, moved))
            made = (out[0] if isinstance(out, tuple) else out).node
            assert made is not None
            of[made] = before.of[node]
            return out
        return rebuild(inner, visit)
    found = moved(graph)
    return found, replace(before, of=of)


def _with_readers(graph: Graph) -> Iterator[tuple[Node, list[Node]]]:
    """The nodes of a graph and of those in it, the last first, each with what reads it."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for x in node.uses():
            readers.setdefault(x, []).append(node)
    for node in reversed(graph.nodes):
        for body in node.graphs:
            yield from _with_readers(body)
        yield node, [y for x in node.outputs for y in readers.get(x, ())]


def _first(readers: list[Node], known: Devices) -> Device | None:
    """Where the first reader is that is anywhere."""
    return next((d for node in readers for x in node.outputs if (d := known.get(x)) is not None), None)


def _order(device: Device) -> tuple[str, int]:
    return device.type, device.index or 0


def silent(graph: Graph) -> Graph:
    """The graph of one device, which says nothing about devices any more."""
    found = rebuild(graph, _unmoved)
    found.notes = {name: value for name, value in graph.notes.items() if name not in (DEVICES, DONATED, UPDATES)}
    return found


def _unmoved(node: Node, inputs: tuple[Input, ...]) -> object:
    if node.op is to_device or node.op is to_device_of:
        return inputs[0]
    if node.graphs:
        return current_builder().emit(node.op, inputs, map_graphs(node.attrs, lambda body: rebuild(body, _unmoved)))
    return copy(node, inputs)
