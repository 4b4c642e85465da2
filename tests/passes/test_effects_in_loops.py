"""What has an effect in a branch or loop stays there, as often and in the order that was written."""

import numpy as np

from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.ops.deferred_output import hearing
from tenon.passes.batch_scan_products import batch_scan_products
from tenon.passes.merge_control_flow import merge_control_flow
from tenon.pipeline import compile


def test_a_later_branch_that_speaks_is_not_run_earlier() -> None:
    graph = parse_graph("""
def f(p: bool, x: f32[3]):
    def t(x: f32[3]):
        y: f32[3] = exp(x)
        return y
    def u(x: f32[3]):
        return x
    a: f32[3] = cond(p, x, true=t, false=u)
    t0: token = say(a, output_effect=0)
    def v(x: f32[3]):
        t1: token = say(x, output_effect=1)
        z: f32[3] = exp(x)
        return z
    b: f32[3] = cond(p, x, true=v, false=u)
    return a, b
""")
    verify(merge_control_flow(graph))
    with hearing() as heard:
        compile(graph).run([np.asarray(True), np.ones(3, np.float32)])
    assert [k for k, _ in heard] == [0, 1]


def test_what_is_received_for_a_branch_is_received_once() -> None:
    """It has no inputs, as a constant has none, which is made again where two branches become one."""
    graph = parse_graph("""
def f(p: bool):
    x: tuple[f32[3], token] = recv(source=1, tag=0, shape=(3,), dtype=f32)
    y: tuple[f32[3], token] = recv(source=1, tag=1, shape=(3,), dtype=f32, after=[x[1]])
    def t(x: f32[3]):
        z: f32[3] = exp(x)
        return z
    def u(x: f32[3]):
        return x
    a: f32[3] = cond(p, x[0], true=t, false=u)
    b: f32[3] = cond(p, y[0], true=t, false=u)
    return a, b
""")
    merged = verify(merge_control_flow(graph))
    assert [node.attrs["tag"] for node in merged.nodes if node.op.name == "recv"] == [0, 1]


def test_what_is_received_in_every_turn_stays_in_the_loop() -> None:
    graph = parse_graph("""
def f(c: f32[3, 3], xs: f32[4, 3, 3]):
    def body(c: f32[3, 3], x: f32[3, 3]):
        w: tuple[f32[3, 3], token] = recv(source=1, tag=0, shape=(3, 3), dtype=f32)
        y: f32[3, 3] = matmul(x, w[0])
        d: f32[3, 3] = add(c, y)
        return d, y
    r: tuple[f32[3, 3], f32[4, 3, 3]] = scan(c, xs, constants=0, carried=1, length=4, body=body, reverse=False)
    return r[0], r[1]
""")
    after = verify(batch_scan_products(graph))
    assert not any(node.op.name == "recv" for node in after.nodes)
    (body,) = [node.attrs["body"] for node in after.nodes if node.op.name == "scan"]
    assert sum(node.op.name == "recv" for node in body.nodes) == 1


def test_a_loop_that_only_speaks_still_speaks() -> None:
    graph = parse_graph("""
def f(c: f32[3, 3], xs: f32[4, 3, 3]):
    def body(c: f32[3, 3], x: f32[3, 3]):
        t0: token = say(x, output_effect=7)
        y: f32[3, 3] = matmul(x, x)
        d: f32[3, 3] = add(c, y)
        return d
    r: f32[3, 3] = scan(c, xs, constants=0, carried=1, length=4, body=body, reverse=False)
    return r
""")
    with hearing() as heard:
        compile(graph).run([np.zeros((3, 3), np.float32), np.ones((4, 3, 3), np.float32)])
    assert [k for k, _ in heard] == [7, 7, 7, 7]
