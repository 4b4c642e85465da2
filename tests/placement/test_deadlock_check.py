"""The proof refuses what can wait for ever, and names the circle."""

import random

import numpy as np
import pytest

from cut_graphs import random_placement
from tenon.errors import CommunicationError, GraphError
from tenon.graph.ir import Graph, Value
from tenon.graph.text import parse_graph
from tenon.ops.transfer import recv, send
from tenon.pipeline import compile
from tenon.placement.cut_by_device import cut
from tenon.placement.deadlock_check import check_no_deadlock
from tenon.runtime.local_transport import LocalTransport
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.sharding.mesh import Mesh

SAY_FIRST = """
def f(x: f32[3]):
    t: token = send(x, to={other}, tag={out})
    r: tuple[f32[3], token] = recv(source={other}, tag={into}, shape=(3,), dtype=f32, after=[t])
    return r[0]
"""
HEAR_FIRST = """
def f(x: f32[3]):
    r: tuple[f32[3], token] = recv(source={other}, tag={into}, shape=(3,), dtype=f32)
    t: token = send(x, to={other}, tag={out}, after=[r[1]])
    return r[0]
"""


def pair(first: str, second: str, tags: tuple[int, int, int, int] = (0, 1, 1, 0)) -> dict[int, Graph]:
    a, b, c, d = tags
    return {0: parse_graph(first.format(other=1, out=a, into=b)), 1: parse_graph(second.format(other=0, out=c, into=d))}


def test_an_exchange_is_proved() -> None:
    check_no_deadlock(pair(SAY_FIRST, SAY_FIRST))
    check_no_deadlock(pair(SAY_FIRST, HEAR_FIRST))


def test_two_that_both_wait_first_are_a_circle_and_so_they_are_at_run_time() -> None:
    graphs = pair(HEAR_FIRST, HEAR_FIRST)
    with pytest.raises(GraphError, match=r"in a circle: .*recv\(tag=\d\) on device \d.* waits for send\(tag=\d\)"):
        check_no_deadlock(graphs)
    both = Graph("both", graphs[0].params, (), graphs[0].params * 2)
    parts = {k: DevicePart(compile(graph, backend="reference"), (0,), (k,)) for k, graph in graphs.items()}
    with pytest.raises(CommunicationError):
        MultiDevice(both, parts, LocalTransport(Mesh({"data": 2}))).run([np.ones(3, np.float32)])


def test_what_nobody_sends_or_receives_is_refused() -> None:
    with pytest.raises(GraphError, match=r"nobody (sends|receives) that"):
        check_no_deadlock(pair(SAY_FIRST, SAY_FIRST, (0, 1, 2, 0)))


def test_a_type_that_changes_on_the_way_is_refused() -> None:
    graphs = pair(SAY_FIRST, SAY_FIRST)
    graphs[1] = parse_graph(str(graphs[1]).replace("shape=(3,)", "shape=(4,)").replace("tuple[f32[3]", "tuple[f32[4]"))
    with pytest.raises(GraphError, match=r"sent as f32\[3\] and received as f32\[4\]"):
        check_no_deadlock(graphs)


def test_collectives_in_two_orders_are_a_circle() -> None:
    text = """
def f(x: f32[3]):
    a: tuple[f32[3], token] = all_reduce(x, over={}, op="sum")
    b: tuple[f32[3], token] = all_reduce(x, over={}, op="sum", after=[a[1]])
    return a[0], b[0]
"""
    same = parse_graph(text.format("('data',)", "('model',)"))
    other = parse_graph(text.format("('model',)", "('data',)"))
    check_no_deadlock({0: same, 1: same})
    with pytest.raises(GraphError, match=r"circle: .*all_reduce"):
        check_no_deadlock({0: same, 1: other})


BRANCHES = """
def f(p: bool, q: bool, x: f32[3]):
    def t(x: f32[3]):
        s: token = send(x, to=1, tag=0)
        return x
    def u(x: f32[3]):
        return x
    y: f32[3] = cond(p, x, true=t, false=u)
    return y
"""
OTHER_SIDE = """
def f(p: bool, q: bool, x: f32[3]):
    def t(x: f32[3]):
        r: tuple[f32[3], token] = recv(source=0, tag=0, shape=(3,), dtype=f32)
        return r[0]
    def u(x: f32[3]):
        return x
    y: f32[3] = cond({}, x, true={}, false={})
    return y
"""


def test_branches_that_speak_must_be_chosen_by_one_value() -> None:
    first = parse_graph(BRANCHES)
    check_no_deadlock({0: first, 1: parse_graph(OTHER_SIDE.format("p", "t", "u"))})
    with pytest.raises(GraphError, match="need not choose the same"):
        check_no_deadlock({0: first, 1: parse_graph(OTHER_SIDE.format("q", "t", "u"))})
    with pytest.raises(GraphError, match="nobody"):
        check_no_deadlock({0: first, 1: parse_graph(OTHER_SIDE.format("p", "u", "t"))})


def shuffled(graph: Graph, choose: random.Random) -> Graph:
    """The transfers of a graph without inputs from each other, in any order."""
    nodes = list(graph.nodes)
    choose.shuffle(nodes)
    return Graph(graph.name, graph.params, tuple(nodes), graph.results)


def waits_for_ever(graphs: dict[int, Graph]) -> bool:
    """By running: each device goes on while it can."""
    places, sent = dict.fromkeys(graphs, 0), set()
    moved = True
    while moved:
        moved = False
        for rank, graph in graphs.items():
            while places[rank] < len(graph.nodes):
                node = graph.nodes[places[rank]]
                if node.op is recv and (node.attrs["source"], rank, node.attrs["tag"]) not in sent:
                    break
                if node.op is send:
                    sent.add((rank, node.attrs["to"], node.attrs["tag"]))
                places[rank] += 1
                moved = True
    return any(places[rank] < len(graph.nodes) for rank, graph in graphs.items())


@pytest.mark.parametrize("seed", range(60))
def test_the_proof_says_what_running_does(seed: int) -> None:
    """Transfers between three devices in random orders: refused exactly where some device waits for ever."""
    choose = random.Random(seed)
    letters = [(*choose.sample(range(3), 2), tag) for tag in range(choose.randint(1, 5))]
    graphs = {}
    for rank in range(3):
        sends = [f"    s{tag}: token = send(x, to={to}, tag={tag})" for source, to, tag in letters if source == rank]
        recvs = [f"    r{tag}: tuple[f32[3], token] = recv(source={source}, tag={tag}, shape=(3,), dtype=f32)"
                 for source, to, tag in letters if to == rank]
        graphs[rank] = shuffled(parse_graph("\n".join(["def f(x: f32[3]):", *sends, *recvs, "    return x"])), choose)
    if waits_for_ever(graphs):
        with pytest.raises(GraphError, match="circle"):
            check_no_deadlock(graphs)
    else:
        check_no_deadlock(graphs)


def test_every_cut_is_proved() -> None:
    graph = parse_graph("""
def f(x: f32[3]):
    a: f32[3] = exp(x)
    b: f32[3] = tanh(a)
    c: f32[3] = add(a, b)
    return c
""")
    assert isinstance(graph.params[0], Value)
    for seed in range(20):
        cut(graph, random_placement(graph, 3, seed))
