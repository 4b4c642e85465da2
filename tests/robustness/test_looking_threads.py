"""Other Python threads that look at what a compiled step changes see it before the step or after it, whole."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.program.backend_interface import IDLE
from tenon.runtime import forks

LOOKS: dict[str, Callable[[Any], Any]] = {
    "its elements": lambda x: x.numpy().copy(),
    "an operator": lambda x: (x + 0.0).numpy(),
    "a compiled function": tn.jit(lambda x: x + 0.0),
    "a detached tensor": lambda x: x.detach(),
    "a view": lambda x: x[:300],
}
SIZE = 700
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals of POSIX")


class Counting:
    """Tensors whose elements are all the number of the step: any mixture is seen."""

    def __init__(self) -> None:
        self.s, self.w = tn.zeros(SIZE, SIZE), tn.zeros(SIZE, SIZE)

    @tn.jit
    def plain(self) -> Any:
        self.w.assign(tn.sqrt(self.w * self.w) + 1.0)
        self.s.assign(tn.sqrt(self.s * self.s) + 1.0)

    @tn.jit
    def behind_a_loop(self) -> Any:
        x = tn.zeros(100, 100)
        while x.sum() < 10_000.0 * 30:
            x = x + 1.0
        self.w.assign(tn.sqrt(self.w * self.w) + x[0, 0] / 30.0)
        self.s.assign(tn.sqrt(self.s * self.s) + x[0, 0] / 30.0)

    @tn.jit
    def behind_a_long_loop(self) -> Any:
        x = tn.zeros(100, 100)
        while x.sum() < 10_000.0 * 60_000:
            x = x + 1.0
        self.s.assign(tn.sqrt(self.s * self.s) + x[0, 0] / 60_000.0)

    @tn.jit
    def behind_a_check(self) -> Any:
        one = tn.take(tn.ones(3), tn.argmax(self.s[0]) * 0 + 1)
        self.w.assign(tn.sqrt(self.w * self.w) + one)
        self.s.assign(tn.sqrt(self.s * self.s) + one)


@pytest.mark.parametrize("step", ["plain", "behind_a_loop", "behind_a_check"])
@pytest.mark.parametrize("look", LOOKS)
def test_another_thread_sees_the_elements_of_one_step(step: str, look: str) -> None:
    counting, done, seen, failed = Counting(), threading.Event(), [], []
    advance = getattr(counting, step)
    for _ in range(3):
        advance()

    def watch() -> None:
        try:
            while not done.is_set():
                seen.append([LOOKS[look](x) for x in (counting.s, counting.w)])
                del seen[:-5]
        except BaseException as error:
            failed.append(error)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for turn in range(60):
            advance()
            for x in [x for pair in seen for x in pair]:
                elements = np.asarray(x)
                assert elements.min() == elements.max() == round(float(elements.flat[0])) <= turn + 4
    finally:
        done.set()
        watcher.join()
    assert not failed and seen
    assert counting.s.numpy().min() == counting.w.numpy().max() == 63


@POSIX
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_beside_a_step_of_another_thread_finds_whole_tensors() -> None:
    counting, done = Counting(), threading.Event()
    for _ in range(3):
        counting.plain()

    def work() -> None:
        while not done.is_set():
            counting.plain()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(15):
            child = os.fork()
            if not child:
                signal.alarm(20)        # rather than wait for a thread that is not here
                try:
                    elements = counting.s.numpy()
                    counting.s.assign(counting.s + 1.0)
                    counting.plain()
                    after = counting.s.numpy()
                    os._exit(not (elements.min() == elements.max() == after.min() - 2 == after.max() - 2))
                except BaseException:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        worker.join()


@POSIX
def test_a_fork_waits_for_no_short_step_that_is_over() -> None:
    w = tn.zeros(8)
    step = tn.jit(lambda: w.assign(w * 0.5 + 1))
    for _ in range(10):
        step()
    assert all(phase.now == IDLE for phase in forks._all)
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_step_of_the_host_sees_and_keeps_the_elements_before_the_step() -> None:
    counting, seen = Counting(), []

    def look(x: np.ndarray) -> np.ndarray:
        seen.append(counting.s.detach())
        other = threading.Thread(target=lambda: seen.append(counting.s.detach()))
        other.start()
        other.join()
        return x
    looking = tn.op("looking", type=lambda x: x, ref=look, replace=True)

    @tn.jit
    def step(x: Any) -> Any:
        counting.s.assign(counting.s + looking(x))
    for turn in range(6):
        step(tn.ones(1))
        assert [(x.min().item(), x.max().item()) for x in seen[-2:]] == [(turn, turn)] * 2
        seen.clear()        # what somebody holds is not updated in its memory


@POSIX
def test_a_handler_of_signals_sees_and_keeps_the_elements_before_the_step() -> None:
    counting, seen = Counting(), []
    for _ in range(3):
        counting.behind_a_long_loop()

    def look(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen.append((counting.s.detach(), float(counting.s[0, 0])))
    before = signal.signal(signal.SIGALRM, look)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.03)
        while not seen:
            counting.behind_a_long_loop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    kept, now = seen[0]         # a busy machine may send another signal before the first stops the timer
    counting.behind_a_long_loop()
    assert kept.numpy().min() == kept.numpy().max() == now
