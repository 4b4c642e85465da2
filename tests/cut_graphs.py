"""Graphs with a device for each node, and what runs them: for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tenon.graph.ir import Graph, Node
from tenon.pipeline import compile
from tenon.placement.cut_by_device import DeviceGraph, cut
from tenon.placement.placement import Placement
from tenon.runtime.local_transport import LocalTransport
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.sharding.mesh import Mesh

Arrays = Sequence[np.ndarray]


def all_nodes(graph: Graph) -> list[Node]:
    """The nodes of a graph and of those in it."""
    return [x for node in graph.nodes for x in (node, *(y for body in node.graphs for y in all_nodes(body)))]


def random_placement(graph: Graph, devices: int, seed: int, anywhere: bool = False) -> Placement:
    """Every node anywhere."""
    choose = random.Random(seed)
    nodes = [node for node in all_nodes(graph) if not node.graphs or choose.random() < 0.3]
    params = [None if anywhere else choose.randrange(devices) for _ in graph.params]
    return Placement(tuple(f"cpu:{k}" for k in range(devices)), {node: choose.randrange(devices) for node in nodes},
                     tuple(params))


def program_of(graph: Graph, parts: dict[int, DeviceGraph], devices: int, backend: str = "cpu") -> MultiDevice:
    """What runs device graphs, a thread each."""
    made = {k: DevicePart(compile(p.graph, backend=backend), p.arguments, p.results) for k, p in parts.items()}
    return MultiDevice(graph, made, LocalTransport(Mesh({"data": devices})))


def run_cut(graph: Graph, placement: Placement, arrays: Arrays, backend: str = "cpu") -> list[np.ndarray]:
    """The results of a graph that was cut."""
    return program_of(graph, cut(graph, placement), len(placement.devices), backend).run(arrays)
