"""Collecting cycles is put off while something is compiled, and comes back in every case."""

import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon import gc_control
from tenon.gc_control import (
    LARGE_PROGRAM_STEPS,
    Collector,
    _unchanged_pages,
    collect_young,
    collected_at_the_end,
    give_back,
)
from tenon.graph.build import Builder
from tenon.graph.op import using
from tenon.llvm import machine_code
from tenon.llvm.code_cache import CodeCache
from tenon.llvm.compile_pool import Workers
from tenon.locks import unforked
from tenon.runtime import program


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_made_inside_are_gone_at_the_end():
    with collected_at_the_end():
        made = weakref.ref(Cycle())
    assert made() is None


def test_the_last_of_several_brings_collecting_back():
    with collected_at_the_end():
        with collected_at_the_end():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_rests_until_all_who_want_that_have_ended():
    with ExitStack() as compiling, using(Builder("recorded")):
        compiling.enter_context(collected_at_the_end())
        compiling.close()
        assert not gc.isenabled()
    with ExitStack() as compiling:
        compiling.enter_context(collected_at_the_end())
        with using(Builder("recorded")):
            compiling.close()
            assert not gc.isenabled()
    assert gc.isenabled()


def test_other_threads_go_on_wherever_a_handler_of_signals_may_run(monkeypatch):
    """Handlers run behind calls: such a one may compile, and wait for threads that want nothing to be collected."""
    collector = Collector()

    def beside(call):
        def asked(*args):
            result = call(*args)
            other = threading.Thread(target=lambda: [collector.pause(), collector.resume()], daemon=True)
            monkeypatch.undo()          # for the other thread
            other.start()
            other.join(10)
            assert not other.is_alive(), f"it waits where {call.__name__} is called"
            return result
        return asked
    for name in ("isenabled", "disable", "enable", "collect"):
        monkeypatch.setattr(gc_control.gc, name, beside(getattr(gc, name)))
        collector.pause()
        collector.resume(look=True)
        monkeypatch.undo()
        assert gc.isenabled() and collector.pauses == 0


def test_threads_that_pause_and_resume_leave_collecting_as_it_was():
    collector = Collector()

    def often():
        for _ in range(3000):
            with collector:
                assert not gc.isenabled() or collector.resuming
    threads = [threading.Thread(target=often) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert gc.isenabled() and not collector.pauses and not collector.resuming


def test_the_last_looks_for_what_was_made_while_another_one_compiled():
    with ExitStack() as compiling, using(Builder("recorded")):
        compiling.enter_context(collected_at_the_end())
        made = weakref.ref(Cycle())
        compiling.close()
        assert made() is not None
    assert made() is None


def test_finalizers_wait_for_imports_and_threads_that_compile():
    """They would wait for threads that wait for what the code that they interrupt has locked."""
    with unforked:
        assert not gc.isenabled()
    assert not Workers(1, "one-worker").submit(gc.isenabled).result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_it_does_not_rest_in_a_child_that_was_forked_meanwhile():
    with using(Builder("recorded")):
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0 and gc.isenabled()


class Dying(Cycle):
    """Calls operators when it is collected, and makes another one, for the next search."""

    alive, failed = True, None

    def __del__(self) -> None:
        try:
            assert (tn.ones(3) + BESIDE).tolist() == [3, 4, 5]
        except BaseException as error:
            Dying.failed = error
        if Dying.alive:
            Dying()


BESIDE = tn.tensor([2.0, 3.0, 4.0])


def test_finalizers_call_operators_beside_what_is_recorded():
    often, Dying.alive = gc.get_threshold(), True
    gc.set_threshold(50)
    try:
        Dying()
        step = tn.jit(tn.grad(lambda x: (tn.softmax(x) * tn.logsumexp(x) / x.sum()).sum()))
        for size in (2, 3, 5):
            assert step(tn.ones(size)).shape == (size,)
    finally:
        gc.set_threshold(*often)
        Dying.alive = False
        gc.collect()
    assert Dying.failed is None


def test_callbacks_of_the_collector_are_no_acts_of_a_function_that_is_mapped():
    times = []

    def note(phase, info):
        times.append(time.perf_counter())

    def example(x):
        rows = [[k] for k in range(200)]
        return x * len(rows)
    often = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(20)
    try:
        assert tn.vmap(example)(tn.ones(3)).tolist() == [200] * 3
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(note)
    assert times and gc.isenabled()


def test_an_error_brings_collecting_back():
    with pytest.raises(ValueError, match="inside"), collected_at_the_end():
        raise ValueError("inside")
    assert gc.isenabled()


def test_what_was_made_inside_is_looked_through_once():
    looks = []

    def note(phase, info):
        if phase == "start":
            looks.append(info["generation"])
    gc.callbacks.append(note)
    try:
        with collected_at_the_end():
            kept = [[] for _ in range(2 * gc.get_threshold()[0])]
        assert looks == [1] and kept
    finally:
        gc.callbacks.remove(note)


def test_who_does_not_collect_is_left_alone():
    gc.disable()
    try:
        tn.jit(lambda x: x * 2 + 1)(tn.ones(3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def chain(length: int) -> Callable[[tn.Tensor], tn.Tensor]:
    def run(x: tn.Tensor) -> tn.Tensor:
        for k in range(length):
            x = x * x + k
        return x
    return run


def steps(count: int) -> Callable[[tn.Tensor], tn.Tensor]:
    def run(x: tn.Tensor) -> tn.Tensor:
        for _ in range(count):
            x = tn.cumsum(x, axis=0)
        return x
    return run


def test_memory_is_given_back_once_much_was_compiled(monkeypatch, tmp_path):
    calls = []
    cache = CodeCache(tmp_path)
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    monkeypatch.setattr(program, "give_back", lambda: calls.append(gc.isenabled()))
    tn.jit(chain(3))(tn.ones(3))
    assert not calls
    many = tn.jit(steps(LARGE_PROGRAM_STEPS))
    many(tn.zeros((13, 7)))                 # no other test's kernel
    assert calls == [True]                  # after the collector ran
    many(tn.zeros((13, 7)))
    tn.jit(steps(LARGE_PROGRAM_STEPS))(tn.zeros((13, 7)))  # all code is there
    assert len(calls) == 1


def test_what_became_garbage_may_be_freed_before_the_end():
    with collected_at_the_end():
        made = weakref.ref(Cycle())
        collect_young(enough=10**9)
        assert made() is not None
        collect_young(enough=0)
        assert made() is None and not gc.isenabled()


def test_code_that_was_given_back_is_read_again():
    f = tn.jit(lambda x: x * 2 + 1)
    f(tn.ones(3))
    give_back()
    np.testing.assert_array_equal(f(tn.ones(3)).numpy(), [3, 3, 3])
    np.testing.assert_array_equal(tn.jit(lambda x: x * 3 - 1)(tn.ones(3)).numpy(), [2, 2, 2])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not tell what is mapped")
def test_pages_of_the_compiler_are_told_apart_from_those_that_hold_addresses():
    tn.jit(lambda x: x * 2 + 1)(tn.ones(3))
    ranges = list(_unchanged_pages("libllvmlite"))
    assert ranges and all(size > 0 for _, size in ranges)
    written = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "libllvmlite" in line]
    for bounds, rights, *_ in written:
        start, end = (int(x, 16) for x in bounds.split("-"))
        if "w" in rights:
            assert not any(at < end and start < at + size for at, size in ranges)


WITH_A_CHILD = """
import os
import tenon as tn
from tenon.gc_control import give_back
tn.jit(lambda x: x * 2 + 1)(tn.ones(3))
waits, ends = os.pipe()
child = os.fork()
if not child:
    os.close(ends)
    os.read(waits, 1)
    os._exit(0)
give_back()
print(tn.jit(lambda x: x * 3 - 1)(tn.ones(3)).tolist())
os.close(ends)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_addresses_in_the_compiler_stay_where_a_forked_child_has_them_too():
    done = subprocess.run([sys.executable, "-c", WITH_A_CHILD], capture_output=True, text=True,
                          env=os.environ | {"TENON_CACHE": "off", "PYTHONPATH": str(Path(__file__).parents[1])})
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0, 2.0]\n"), done.stderr


@pytest.mark.parametrize("change", [lambda y, w: y.__setitem__(1, w), lambda y, w: y.mul_(w), lambda y, w: y.__iadd__(w),
                                    lambda y, w: y.copy_(w * tn.ones(3))])
def test_a_tensor_changed_in_place_by_what_is_on_the_tape_goes_with_its_last_name(change: Callable[..., object]) -> None:
    w = tn.tensor(2.0, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        y = tn.zeros(3)
        change(y, w)
        assert y.requires_grad
        gone = weakref.ref(y)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_a_recording_that_ends_in_another_context_brings_collecting_back():
    # as that of a generator which another task, or the collector, closes
    def begun():
        recording = using(Builder("recorded"))
        recording.__enter__()
        return recording
    recording = contextvars.copy_context().run(begun)
    assert not gc.isenabled()
    with pytest.raises(ValueError, match="different Context"):
        recording.__exit__(None, None, None)
    assert gc.isenabled()
