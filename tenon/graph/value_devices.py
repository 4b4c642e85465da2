"""A graph -> the device of each of its values: where it is computed, as far as parameters and moves say.

    def f(x: f32[8, 4], w: f32[8, 4] @ cpu:1):
        v0: f32[8, 4] @ cpu:1 = to_device(x, device="cpu:1")
        v1: f32[8, 4] @ cpu:1 = add(v0, w)          # where its inputs are
        return v1

The devices of parameters stand in a note of the graph (`DEVICES`); one without a device lies on the first, "cpu".  What
is made from no tensor has no device: it is made where it is read.  In a graph without the note and without moves nobody
says anything about devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.devices import HOST, Device, as_device
from tenon.errors import ArgumentError, DeviceError
from tenon.graph.ir import DEVICES, Graph, Node, Value
from tenon.graph.op import OPS
from tenon.graph.operand_names import refused_devices

Devices = dict[Value, Device | None]
ANYWHERE = "any"    # instead of a device: memory of this process that every device is given
HANDLES = "ts"      # kinds of types that are no data: tokens and stacks


def speaks_of_devices(graph: Graph) -> bool:
    """Whether anything in a graph says where it is computed."""
    if graph.notes.get(DEVICES):
        return True
    moves = OPS.get("to_device")
    return any(node.op is moves or any(map(speaks_of_devices, node.graphs)) for node in graph.nodes)


def devices_of(graph: Graph) -> Devices:
    """The device of every value, those of sub-graphs too; of what is made from nothing, None.

    Raises DeviceError, at the user's line, where an operator reads values of several devices.
    """
    known: Devices = {}
    given = graph.notes.get(DEVICES) or (None,) * len(graph.params)
    _enter(graph, [HOST if name is None else None if name == ANYWHERE else as_device(name) for name in given], known)
    return known


def result_devices(graph: Graph) -> tuple[Device, ...] | None:
    """The device of each result; None where all is on the first."""
    if not speaks_of_devices(graph):
        return None
    known = devices_of(graph)
    return tuple(known[r] or HOST for r in graph.results)


def _enter(graph: Graph, params: Sequence[Device | None], known: Devices) -> None:
    """Add what follows for a graph whose parameters have these devices."""
    for param, device in zip(graph.params, params, strict=True):
        known.setdefault(param, device)
    for node in graph.nodes:
        known.update(zip(node.outputs, node_devices(node, known), strict=True))


def node_devices(node: Node, known: Devices) -> Sequence[Device | None]:
    """The devices of a node's outputs, given those of what it reads; adds those of the values of its sub-graphs."""
    if node.op is OPS.get("to_device"):
        try:
            return [as_device(node.attrs["device"])]
        except ArgumentError as error:
            raise DeviceError(f"to_device: {error.what}", where=node.loc, hint=error.hint) from None
    read = [known.get(x) if isinstance(x, Value) and x.dtype.kind not in HANDLES else None for x in node.inputs]
    if node.op is OPS.get("to_device_of"):
        return [read[1]]
    if node.graphs:
        return _through(node, read, known)
    found = {device for device in read if device is not None}
    if len(found) > 1:
        raise refused_devices(node.op.name, node.inputs, read, node.loc)
    return [next(iter(found), None)] * len(node.outputs)


def _check_alike(node: Node, begun: Sequence[Device | None], found: Sequence[Device | None]) -> None:
    """Raise DeviceError where the second branch leaves a result elsewhere than the first, or a round what it took."""
    for x, a, b in zip(node.outputs, begun, found, strict=False):
        if a is not None and b is not None and a is not b and x.dtype.kind not in HANDLES:
            said = f"{x.type} begins a loop on {a}, and a round leaves it on {b}" if "constants" in node.attrs else \
                f"{x.type} is on {a} where the condition holds, and on {b} where it does not"
            raise DeviceError(f"{node.op.name}: {said}", where=node.loc, hint=f'move it to one device: .to("{a}")')


def _through(node: Node, read: Sequence[Device | None], known: Devices) -> Sequence[Device | None]:
    """Of a branch, loop or call: each result is where a sub-graph makes it, or where it came from.

    What sub-graphs take stands at the end of the inputs of a branch, and at the start of those of a loop.
    """
    outputs: list[Device | None] = [None] * len(node.outputs)
    loop = "constants" in node.attrs
    for condition in node.graphs[:-1] if loop else ():
        _enter(condition, read[:len(condition.params)], known)
    for graph in node.graphs[-1:] if loop else node.graphs:
        count = len(graph.params)
        _enter(graph, read[:count] if loop else read[len(read) - count:], known)
        if len(graph.results) == len(outputs) and graph.results != ():
            found = [known.get(x) for x in graph.results]
            begun = read[node.attrs["constants"]:][:node.attrs.get("carried", count)] if loop else outputs
            _check_alike(node, begun, found)
            outputs = [a if a is not None else b for a, b in zip(outputs, found, strict=True)]
    only = {device for device in read if device is not None}
    alone = next(iter(only)) if len(only) == 1 else None
    return [alone if device is None else device for device in outputs]
