"""Device graphs at once: results, errors that end all devices, nothing that hangs."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from cut_graphs import program_of, run_cut
from tenon.errors import ArgumentError, CommunicationError, TenonError
from tenon.graph.build import trace
from tenon.graph.ir import Graph
from tenon.graph.op import OPS
from tenon.ops.define import define
from tenon.ops.transfer import recv, send, to_device, to_device_of
from tenon.pipeline import compile
from tenon.placement.cut_by_device import cut
from tenon.placement.placement import Placement
from tenon.runtime.device_threads import run_side_by_side
from tenon.runtime.local_transport import LocalTransport
from tenon.runtime.multi_device import DevicePart, MultiDevice
from tenon.runtime.thread_pool import get_num_threads, pool
from tenon.sharding.mesh import Mesh
from tenon.types import TensorType, float32

VECTOR = TensorType(float32, (3,))


def host(name: str, ref: Callable[..., Any], **fields: Any) -> Any:
    return OPS.get(name) or define(name, public=False, type=lambda x: x, ref=ref, **fields)


def one_each(function: Callable[..., Any], *types: TensorType, devices: int = 2) -> tuple[Graph, Placement]:
    """A graph of which node k is on device k."""
    graph = trace(function, *types)
    return graph, Placement(tuple(f"cpu:{k}" for k in range(devices)),
                            {node: k % devices for k, node in enumerate(graph.nodes)}, (None,) * len(types))


def test_devices_speak_in_both_directions() -> None:
    graph, placement = one_each(lambda x: (tn.exp(tn.sin(x) + 1.0) * 2.0, x), VECTOR, devices=3)
    x = np.array([1, 2, 3], np.float32)
    found = run_cut(graph, placement, [x])
    np.testing.assert_allclose(found[0], np.exp(np.sin(x) + 1) * 2, rtol=1e-6)
    assert found[1] is not x and (found[1] == x).all()


def test_a_value_crosses_once_for_each_device_that_reads_it() -> None:
    graph = trace(lambda x: (y := tn.exp(x), y + 1.0, y * 2.0, y - 1.0), VECTOR)
    placement = Placement(("a", "b"), {node: min(k, 1) for k, node in enumerate(graph.nodes)}, (None,))
    parts = cut(graph, placement)
    assert [str(p.graph).count("send(") for p in parts.values()] == [1, 0]
    assert [str(p.graph).count("recv(") for p in parts.values()] == [0, 1]
    assert parts[0].results == (0,) and parts[1].results == (1, 2, 3)


def test_an_error_on_one_device_ends_the_others_that_wait() -> None:
    def fails(x: Any) -> Any:
        time.sleep(0.05)
        raise ValueError("no such file")
    bad = host("test_device_fails", fails)
    graph, placement = one_each(lambda x: tn.exp(bad(x)), VECTOR)
    with pytest.raises((ValueError, TenonError), match="no such file") as caught:
        run_cut(graph, placement, [np.ones(3, np.float32)])
    assert "on device 0" in "".join(getattr(caught.value, "__notes__", ()))


def test_an_error_in_compiled_code_ends_the_others() -> None:
    graph, placement = one_each(lambda x, i: tn.exp(tn.take(x, i)), VECTOR, TensorType(tn.int64, (2,)))
    program = program_of(graph, cut(graph, placement), 2)
    with pytest.raises(IndexError, match="take"):
        program.run([np.ones(3, np.float32), np.array([0, 7])])
    good = program.run([np.ones(3, np.float32), np.array([0, 2])])
    np.testing.assert_allclose(good[0], np.exp(np.ones(2)), rtol=1e-6)


def test_who_waits_for_what_is_never_sent_is_told() -> None:
    graph = trace(lambda x: recv(source=0, tag=5, shape=(3,), dtype=float32)[0] + x, VECTOR)
    silent = trace(lambda x: x * 2.0, VECTOR)
    both = Graph("both", graph.params, (), (graph.params[0], graph.params[0]))
    parts = {0: DevicePart(compile(silent), (0,), (0,)), 1: DevicePart(compile(graph), (0,), (1,))}
    with pytest.raises(CommunicationError, match="has ended"):
        MultiDevice(both, parts, LocalTransport(Mesh({"data": 2}))).run([np.ones(3, np.float32)])


def test_ctrl_c_on_one_device_ends_all() -> None:
    def interrupt(x: Any) -> Any:
        raise KeyboardInterrupt
    graph, placement = one_each(lambda x: tn.exp(host("test_device_interrupt", interrupt)(x)), VECTOR)
    with pytest.raises(KeyboardInterrupt):
        run_cut(graph, placement, [np.ones(3, np.float32)])


def test_results_that_no_device_makes_and_wrong_arguments_are_refused() -> None:
    graph, placement = one_each(lambda x: tn.exp(tn.sin(x)), VECTOR)
    parts = cut(graph, placement)
    with pytest.raises(ArgumentError, match="result 0 is made by no device"):
        program_of(graph, {0: parts[0]}, 2)
    with pytest.raises(ArgumentError, match="takes 1 arrays, not 2"):
        program_of(graph, parts, 2).run([np.ones(3, np.float32)] * 2)


def test_state_is_stored_when_all_devices_have_ended() -> None:
    graph, placement = one_each(lambda x: (tn.sin(x), tn.exp(x)), VECTOR)
    seen: list[Any] = []
    found = program_of(graph, cut(graph, placement), 2).run(
        [np.zeros(3, np.float32)], then=lambda results, phase: iter([seen.append([r.sum() for r in results])]))
    assert seen == [[0.0, 3.0]] and len(found) == 2


def test_devices_run_side_by_side() -> None:
    """Each waits until the other is there too."""
    meet = threading.Barrier(3, timeout=100)

    def wait(x: Any) -> Any:
        meet.wait()
        return x
    waits = host("test_device_meets", wait)
    graph = trace(lambda x: (waits(x), waits(x), waits(x)), VECTOR)
    placement = Placement(("a", "b", "c"), {node: k for k, node in enumerate(graph.nodes)}, (None,))
    for _ in range(2):
        assert len(run_cut(graph, placement, [np.ones(3, np.float32)])) == 3


def test_each_device_has_its_share_of_the_threads() -> None:
    found = run_side_by_side([lambda: pool().threads] * 3, on_failure=print)
    assert len(found) == 3 and sum(found) >= min(get_num_threads(), 3) and min(found) >= 1
    assert pool().threads == get_num_threads()


def test_runs_may_be_nested_and_made_by_several_threads() -> None:
    graph, placement = one_each(lambda x: tn.exp(tn.sin(x) * 2.0), VECTOR)
    program = program_of(graph, cut(graph, placement), 2)
    x = np.array([1, 2, 3], np.float32)
    expected = program.run([x])[0]
    inner = host("test_device_nested", lambda x: program.run([x])[0])
    outer, placed = one_each(lambda x: inner(tn.sin(x)), VECTOR)
    both = program_of(outer, cut(outer, placed), 2)
    np.testing.assert_allclose(both.run([x])[0], program.run([np.sin(x)])[0], rtol=1e-6)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(program.run([x])[0] for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 80 and all((y == expected).all() for y in found)


@pytest.fixture
def two_devices() -> Iterator[None]:
    tn.set_devices(2)
    yield
    tn.set_devices(1)


@pytest.mark.usefixtures("two_devices")
def test_to_device_is_the_value_itself_and_so_is_its_gradient() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)

    def loss(x: Any) -> Any:
        return (tn.exp(to_device(x, device="cpu:1")) * 3.0).sum()
    loss(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.exp([1.0, 2.0]), rtol=1e-6)
    np.testing.assert_allclose(tn.jit(tn.grad(loss))(x).numpy(), x.grad.numpy(), rtol=1e-6)
    assert "to_device_of" in str(trace(lambda g, x: to_device_of(g, x), VECTOR, VECTOR))


@pytest.mark.parametrize("make", [lambda x: send(x, to=-1, tag=0), lambda x: send(x, to=0, tag=True),
                                  lambda x: to_device(x, device="")])
def test_addresses_are_checked(make: Any) -> None:
    with pytest.raises(TenonError, match=r"whole number from 0|named by a text"):
        trace(lambda x: (make(x), x)[1], VECTOR)


ENDLESS = """
import os, signal, threading, time
import numpy as np
from cut_graphs import all_nodes, program_of
import tenon as tn
from tenon.graph.build import trace
from tenon.ops.loops import while_loop
from tenon.placement.cut_by_device import cut
from tenon.placement.placement import Placement
from tenon.types import TensorType, float32
vector = TensorType(float32, (3,))

def endless(x):
    body, condition = trace(lambda x: tn.tanh(x), vector), trace(lambda x: x.sum() < 1e30, vector)
    return tn.exp(while_loop(x, constants=0, condition=condition, body=body))
graph = trace(endless, vector)
there = {node: int(WHERE if node.op.name != "exp" else 1 - WHERE) for node in all_nodes(graph)}
program = program_of(graph, cut(graph, Placement(("a", "b"), there, (None,))), 2)
signal.signal(signal.SIGINT, signal.default_int_handler)     # whoever starts it in the background ignores it
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    program.run([np.ones(3, np.float32)])
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="signals as POSIX has them")
@pytest.mark.parametrize("where", [0, 1])
def test_ctrl_c_ends_a_loop_without_end_on_any_device(where: int, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS.replace("WHERE", str(where)))
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600,
                         env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"})
    assert ran.stdout == "stopped\n", ran.stderr
