"""Ctrl-C ends loops of machine code that do not end by themselves, and what runs after it is as if nothing had been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from robustness import interrupted
from tenon.graph.build import Builder
from tenon.locks import Lock

START = """
    import os, signal, threading, time
    import numpy as np
    import tenon as tn

    signal.signal(signal.SIGINT, signal.default_int_handler)    # which a process started in the background ignores

    raised = threading.Event()

    def in_a_moment(times=1):
        # Again much later: Python drops the error of a handler that runs within a finalizer.
        def send():
            for _ in range(times):
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGINT)
            while not raised.wait(10):
                os.kill(os.getpid(), signal.SIGINT)
        raised.clear()
        threading.Thread(target=send, daemon=True).start()

    def must_raise(error, f, *args):
        try:
            f(*args)
        except error:
            raised.set()
            return
        raise AssertionError("it ended")

    @tn.jit
    def in_a_kernel(x):
        while x > 0:
            x = x * 0.5 + 0.5
        return x

    @tn.jit
    def of_steps(x):
        while x.sum() > 0:
            x = tn.sin(x) * 0.0 + 1.0
        return x
"""

PROGRAMS = {
    "a loop within one kernel": """
        for warm in range(4):
            assert in_a_kernel(tn.tensor(-1.0)).item() == -1.0
            in_a_moment()
            must_raise(KeyboardInterrupt, in_a_kernel, tn.tensor(1.0))
    """,
    "a loop of steps, alone and on every thread": """
        for size in (3000, 300_000):
            for warm in range(4):
                assert of_steps(-tn.ones(size)).sum().item() == -size
                in_a_moment()
                must_raise(KeyboardInterrupt, of_steps, tn.ones(size))
    """,
    "a loop of many turns": """
        run = tn.jit(lambda x, turns: tn.fori_loop(0, turns, lambda i, x: tn.sin(x) * 0.5 + i * 1e-20, x))
        run(tn.ones(3000), tn.tensor(1))            # compiles: Python ignores a signal within some of its own calls
        in_a_moment()
        must_raise(KeyboardInterrupt, run, tn.ones(3000), tn.tensor(10**12))
    """,
    "a loop in a loop": """
        @tn.jit
        def nested(x):
            while x.sum() > 0:
                y = x[0]
                while y > 0:
                    y = y * 0.5 + 0.5
                x = x + y
            return x
        assert nested(-tn.ones(3000)).sum().item() == -3000
        in_a_moment()
        must_raise(KeyboardInterrupt, nested, tn.ones(3000))
    """,
    "nothing is assigned": """
        weight = tn.ones(1000)

        @tn.jit
        def step(x):
            weight.assign(weight * 2.0 + in_a_kernel(x))
        for _ in range(3):
            step(tn.tensor(-1.0))
        before = weight.numpy().copy()
        in_a_moment()
        must_raise(KeyboardInterrupt, step, tn.tensor(1.0))
        assert np.array_equal(weight.numpy(), before)
        step(tn.tensor(-1.0))
        assert np.array_equal(weight.numpy(), before * 2 - 1)
    """,
    "a handler of the user's": """
        seen = []

        def handler(number, frame):
            seen.append(in_a_kernel(tn.tensor(-1.0)).item())
            if len(seen) == 2:
                raise RuntimeError("enough")
        signal.signal(signal.SIGINT, handler)
        for _ in range(3):
            in_a_kernel(tn.tensor(-1.0))
        in_a_moment(times=2)
        must_raise(RuntimeError, in_a_kernel, tn.tensor(1.0))
        assert seen == [-1.0, -1.0]
    """,
    "operators that are run one by one": """
        class Late(Exception):
            pass

        def handler(number, frame):
            raise Late
        signal.signal(signal.SIGINT, handler)

        def forever():
            x = tn.ones(100_000)
            while True:
                x = tn.sin(x) * 0.5 + x.sum() * 1e-6
        in_a_moment()
        must_raise(Late, forever)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    """,
    "the loops of other threads go on": """
        @tn.jit
        def turns(n):
            x = tn.tensor(0.0)
            while n > 0:
                n, x = n - 1, x * 0.5 + 1.0
            return x
        expected, found, done = turns(tn.tensor(1_000_000)).item(), [], threading.Event()

        def work():
            while not done.is_set():
                found.append(turns(tn.tensor(1_000_000)).item())
        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(3):
            in_a_moment()
            must_raise(KeyboardInterrupt, in_a_kernel, tn.tensor(1.0))
        done.set()
        worker.join()
        assert found and set(found) == {expected}
    """,
}


BETWEEN = """
    print({name!r}, flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_signal_ends_whatever_runs(threads: str, tmp_path: Path) -> None:
    """One process goes through all programs, and says which it is at: to start takes longer than most of them."""
    parts = [START, *(text for name, text in PROGRAMS.items() for text in (BETWEEN.format(name=name), text))]
    program = tmp_path / "program.py"       # the text of which captures can read
    program.write_text("".join(map(textwrap.dedent, parts)))
    environment = {**os.environ, "TENON_THREADS": threads}
    done = subprocess.run([sys.executable, program], env=environment, timeout=900, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines() == list(PROGRAMS)


# ---------------------------------------------------------------- what interrupts leave

INTERRUPTS = int(os.environ.get("TENON_TEST_INTERRUPTS", "16"))     # of each program; 125 make a thousand


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", interrupted.PROGRAMS)
def test_what_an_interrupt_finds_is_a_state_of_the_undisturbed_run(name: str) -> None:
    command = [sys.executable, interrupted.__file__, name, str(INTERRUPTS), "1"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=900,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == 0 and found["raised"] + found["looked"] >= INTERRUPTS * 3 // 4, found


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("converting", [False, True])
def test_what_a_handler_does_while_a_function_is_captured_is_no_part_of_it(converting: bool) -> None:
    weight, rate, seen = tn.ones(2), tn.tensor(1.0), []

    def handler(*_: Any) -> None:
        seen.append(weight.numpy().tolist())
        rate.assign(0.5)
        model.asked = True

    class Model:
        asked = False

        def step(self) -> Any:
            x = weight
            for _ in range(400):
                x = x + 0.0
            if converting and x.sum() < 0:
                x = -x
            weight.assign(x + rate * self.asked)
    model = Model()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        step = tn.jit(model.step)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        step()
        assert seen == [[1.0, 1.0]] and rate.item() == 0.5 and model.asked
        rate.assign(2.0)
        model.asked = False
        now = weight.tolist()
        for _ in range(4):
            step()
        assert seen == [[1.0, 1.0]] and rate.item() == 2.0 and not model.asked and weight.tolist() == now
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("place", ["broadcast", "emit"])
def test_a_handler_that_asks_while_a_call_is_recorded_takes_nothing_from_it(
        place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[tn.Tensor] = []
    seen: list[float] = []
    usual = getattr(Builder, place)

    def interrupted_once(*args: Any, **keywords: Any) -> Any:
        if waiting:
            signal.raise_signal(signal.SIGUSR1)
        return usual(*args, **keywords)

    def function(x: tn.Tensor) -> tn.Tensor:
        time.time_ns()
        doubled = x * 2
        waiting.append(doubled)
        return (doubled + 1) * doubled
    # Code without lines cannot be split, so it runs with graph breaks.
    step = tn.jit(types.FunctionType(function.__code__.replace(co_filename="<unknown>"), globals(), "function", None,
                                     function.__closure__))
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(waiting.pop().numpy().max()))
    try:
        step(tn.ones(500, 400))         # eagerly
        waiting.clear()
        monkeypatch.setattr(Builder, place, interrupted_once)
        for _ in range(3):
            np.testing.assert_array_equal(step(tn.ones(500, 400)), np.full((500, 400), 6))
        assert seen == [2.0, 2.0, 2.0]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_leaves_no_lock_closed() -> None:
    lock, draw = Lock(), random.Random(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(500):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 3e-4))
                while True:
                    with lock:
                        pass
            assert not lock._is_owned()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
