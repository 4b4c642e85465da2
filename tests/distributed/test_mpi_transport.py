"""Processes that speak by MPI: the same bits as threads, and an end for all when one fails."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed.mpi_ranks import everything
from distributed.test_local_transport import on_ranks
from tenon.distributed.graph_agreement import difference

pytest.importorskip("mpi4py")
ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"


def mpiexec(count: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python on so many ranks."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    return subprocess.run([str(MPIEXEC), "-n", str(count), sys.executable, *command], capture_output=True, text=True,
                          timeout=600, env={**os.environ, "PYTHONPATH": path, "TENON_THREADS": "1", **environment})


@pytest.mark.parametrize("count", [2, 3])
def test_the_bits_are_those_of_the_local_transport(count: int, tmp_path: Path) -> None:
    ran = mpiexec(count, str(Path(__file__).with_name("mpi_ranks.py")), str(tmp_path), str(count))
    assert ran.returncode == 0, ran.stderr
    for rank, local in enumerate(on_ranks(count, everything)):
        with np.load(tmp_path / f"{rank}.npz") as found:
            assert set(found) == set(local)
            for name, x in local.items():
                np.testing.assert_array_equal(found[name], x.reshape(-1).view(np.uint8), err_msg=name)


def failing(tmp_path: Path, text: str, count: int = 2, **environment: str) -> tuple[Any, float]:
    """A program of the ranks that fails: what it printed, and how long it took."""
    script = tmp_path / "script.py"
    script.write_text("import numpy as np, os, signal, sys, time\n"
                      "from tenon.distributed.mpi_transport import MpiTransport\n"
                      "from tenon.sharding.mesh import Mesh\n"
                      f"((rank, speaker),) = MpiTransport(Mesh({{'data': {count}}})).begin().items()\n"
                      "speaker.barrier(('data',))\n" + text)
    started = time.monotonic()
    return mpiexec(count, str(script), **environment), time.monotonic() - started


def test_a_rank_that_fails_while_sums_are_under_way_ends_all(tmp_path: Path) -> None:
    ran, seconds = failing(tmp_path, "x, out = np.ones(1 << 20), np.empty(1 << 20)\n"
                                     "speaker.start_sum([x], [out], ('data',))\n"
                                     "if rank == 1: raise ValueError('the disk is full')\n"
                                     "speaker.finish_sum([out])\n"
                                     "speaker.all_reduce(np.ones(3), ('data',))\n", 2)
    assert ran.returncode != 0 and seconds < 20
    assert "rank 1 failed: ValueError: the disk is full" in ran.stderr


def test_an_error_of_one_rank_ends_all(tmp_path: Path) -> None:
    ran, seconds = failing(tmp_path, "if rank == 1: raise ValueError('the disk is full')\n"
                                     "speaker.all_reduce(np.ones(3), ('data',))\n", 3)
    assert ran.returncode != 0 and seconds < 20
    assert "ValueError: the disk is full" in ran.stderr
    assert "rank 1 failed: ValueError: the disk is full" in ran.stderr


def test_who_waits_for_a_rank_that_has_ended_is_told_so(tmp_path: Path) -> None:
    ran, seconds = failing(tmp_path, "if rank == 0: speaker.recv((2,), np.float64, 1, 7)\n")
    assert ran.returncode != 0 and seconds < 20
    assert "rank 0 waits in recv(source=1, tag=7) of f64[2] for rank 1, which has ended" in ran.stderr


def test_a_killed_rank_ends_all(tmp_path: Path) -> None:
    ran, seconds = failing(tmp_path, "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
                                     "speaker.all_reduce(np.ones(3), ('data',))\n")
    assert ran.returncode != 0 and seconds < 20


def test_a_stopped_rank_ends_all_after_the_time_limit(tmp_path: Path) -> None:
    ran, seconds = failing(tmp_path, "if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\n"
                                     "speaker.all_reduce(np.ones(3), ('data',))\n", TENON_TIMEOUT="1")
    assert ran.returncode != 0 and seconds < 20
    assert "rank 0 has waited 1 s in all_reduce('sum') of f64[3] over ('data',) for rank 1" in ran.stderr


def test_a_mesh_of_another_size_than_the_world_is_refused(tmp_path: Path) -> None:
    ran = mpiexec(2, "-c", "from tenon.distributed import Mesh\nfrom tenon.runtime.transports import transport_for\n"
                           "transport_for(Mesh({'data': 3}))")
    assert ran.returncode != 0
    assert "Mesh({'data': 3}) has 3 places, and there are 2 processes" in ran.stderr
    assert "tenon launch -n 3" in ran.stderr


def test_ranks_that_captured_different_graphs_are_told_where_they_differ(tmp_path: Path) -> None:
    ran, _ = failing(tmp_path, "import tenon as tn\n"
                               "from tenon.graph.build import trace\n"
                               "from tenon.types import TensorType, float32\n"
                               "def step(x):\n"
                               "    y = tn.sin(x)\n"
                               "    if rank: y = y * 2.0\n"
                               "    return y + 1.0\n"
                               "MpiTransport(Mesh({'data': 2})).agree(trace(tn.exp, TensorType(float32, (3,))))\n"
                               "MpiTransport(Mesh({'data': 2})).agree(trace(step, TensorType(float32, (3,))))\n")
    said = ("ranks captured different graphs of step, at node 2: rank 0 has `v1: f32[3] = add(v0, 1.0)  "
            "# script.py:12`, rank 1 has `v1: f32[3] = multiply(v0, 2.0)  # script.py:11`")
    assert ran.returncode != 0 and ran.stderr.count(said) == 2, ran.stderr


def test_of_graphs_with_many_parameters_the_first_that_differs_is_told() -> None:
    heads = [f"def step(x: f32[{n}, 8] @ cpu:1, w: tuple[f32[8, 4], token], b: f32[4]):\n    return x\n" for n in (10, 9)]
    said = difference("step", heads)
    assert said == ("ranks captured different graphs of step, at its parameters: "
                    "rank 0 has `x: f32[10, 8] @ cpu:1`, rank 1 has `x: f32[9, 8] @ cpu:1`")
    assert "rank 0 has `nothing`, rank 1 has `b: f32[4]`" in difference("f", ["def f(x: f32):", "def f(x: f32, b: f32[4]):"])


CALLS = """
import sys, numpy as np
from tenon.distributed.mpi_transport import MpiTransport
from tenon.errors import TenonError
from tenon.sharding.mesh import Mesh

over = ("data",)
((rank, s),) = MpiTransport(Mesh({"data": int(sys.argv[1])})).begin().items()
x = np.ones(4, np.float32)
calls = {
    "sizes": lambda: s.reduce_scatter(np.ones(4 + 2 * rank, np.float32), 0, over, "sum", 2),
    "root sends": lambda: s.all_reduce(x, over) if rank else s.broadcast(x, over, 0),
    "ring": lambda: s.all_reduce(x, over) if rank == 1 else s.permute(x, over),
    "all of them wrong": lambda: s.all_gather(x, 0, over, 3),
}
for again, call in enumerate(["all of them wrong", sys.argv[2], sys.argv[2]]):
    try:
        calls[call]()
        print("nothing")
    except TenonError as error:
        print(again, error.what, flush=True)
"""


@pytest.mark.parametrize(("count", "call", "said"), [
    (2, "sizes", "rank 0 waits in reduce_scatter(0, 'sum') of f32[4] over ('data',), rank 1 is in reduce_scatter(0, "
                 "'sum') of f32[6] over ('data',), refused: part 1 of 2 of 6 elements has 3, not 2"),
    (2, "root sends", "rank 0 waits in broadcast(0) of f32[4] over ('data',), rank 1 waits in all_reduce('sum') of "
                      "f32[4] over ('data',)"),
    (3, "ring", "rank 0 waits in permute(1) of f32[4] over ('data',), rank 1 waits in all_reduce('sum') of f32[4] over "
                "('data',)")])
def test_all_ranks_hear_the_same_of_calls_that_differ(tmp_path: Path, count: int, call: str, said: str) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    ran = mpiexec(count, str(tmp_path / "calls.py"), str(count), call)
    heard = sorted(ran.stdout.splitlines())
    assert ran.returncode == 0 and len(heard) == 3 * count, ran.stdout + ran.stderr
    assert all("0 all_gather: part" in text and "of 3 elements" in text for text in heard[:count])  # each its own, at once
    (told,) = {text[2:] for text in heard[count:2 * count]}
    assert told.startswith(f"ranks disagree: {said}")
    assert {text[2:] for text in heard[2 * count:]} == {f"a call before this one was broken off: {told}"}


LOOPS = """
import sys
import tenon as tn
from tenon import distributed as dist
from tenon.errors import CommunicationError

rank = dist.rank()

@tn.jit
def step(x, n):
    k = 0
    while k < 3:
        if sys.argv[1] == "roots":
            x = dist.collective_broadcast(x, over="data", root=rank)
        elif n > k + 1:
            x = dist.all_reduce(x, over="data")
        else:
            x = dist.all_gather(x, axis=0, over="data", size=8)[:4]
        k = k + 1
    return x
try:
    step(tn.ones(4), tn.tensor(2 + rank))
    print("nothing")
except CommunicationError as error:
    print(error.what, "script.py" in str(error) or "loops.py" in str(error), flush=True)
"""


@pytest.mark.parametrize(("how", "said"), [
    ("roots", "rank 0 waits in broadcast(0) of f32[4] over ('data',), rank 1 waits in broadcast(1) of f32[4]"),
    ("branches", "rank 0 waits in all_gather(0) of f32[8] over ('data',), rank 1 waits in all_reduce('sum') of f32[4]")])
def test_calls_that_differ_within_a_loop_are_told_to_all_ranks(tmp_path: Path, how: str, said: str) -> None:
    """In the second round of a branch whose condition ranks see differently, too."""
    (tmp_path / "loops.py").write_text(LOOPS)
    ran = mpiexec(2, str(tmp_path / "loops.py"), how)
    heard = ran.stdout.splitlines()
    assert ran.returncode == 0 and len(heard) == 2, ran.stdout + ran.stderr
    assert all(text.startswith(f"ranks disagree: {said}") and text.endswith("True") for text in heard), heard
