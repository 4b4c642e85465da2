"""The thread pool: every thread runs, barriers hold, callers do not block each other, fork and exit do not hang."""

import ctypes
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from tenon.errors import ArgumentError
from tenon.llvm import machine_code
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, Pointer, Word
from tenon.llvm.native_thread_pool import meet
from tenon.runtime import thread_pool
from tenon.runtime.thread_pool import Pool, SignalledPool


def play(f: NativeFunction, words: Pointer, thread: Word, threads: Word) -> None:
    """Words: pool, rounds, violations seen; from 8 on a counter of each thread, a cache line apart.

    Each round: my counter += 1; all meet; every thread's counter must equal the round; all meet.
    """
    def counter(number: Word) -> Word:
        return number * 8 + 8

    with f.each(words.word(1)) as k:
        words.put(k + 1, counter(thread.wide()))
        meet(f, words.pointer(), threads)
        with f.each(threads.wide()) as other, f.unless(words.word(counter(other)) == k + 1):
            words.at(2).shared().add(1)
        meet(f, words.pointer(), threads)
    f.give()


@pytest.fixture(scope="module")
def rounds() -> machine_code.Library:
    module = NativeModule()
    module.define("rounds", play, NOTHING, POINTER, HALF, HALF, public=True)
    return machine_code.compile(str(module))


def run_rounds(pool: Pool, library: machine_code.Library, count: int) -> np.ndarray:
    """The counters after so many rounds on a pool; all equal, and nothing seen out of step."""
    words = np.zeros(8 * (pool.threads + 1), np.int64)
    words[:2] = pool.state, count
    pool.run(library.address("rounds"), words.ctypes.data)
    assert words[2] == 0
    return words[8::8]


@pytest.fixture(params=[Pool, SignalledPool])
def make_pool(request):
    if request.param is Pool and sys.platform != "linux":
        pytest.skip("futex is Linux")
    pools = []

    def make(threads: int) -> Pool:
        pools.append(request.param(threads))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_thread_runs_and_a_barrier_lets_nobody_ahead(make_pool, rounds, threads):
    pool = make_pool(threads)
    for count in (1, 1, 50):
        assert (run_rounds(pool, rounds, count) == count).all()


def test_regions_follow_each_other_after_sleep(make_pool, rounds):
    pool = make_pool(3)
    for _ in range(5):
        run_rounds(pool, rounds, 2)
        time.sleep(0.005)  # the workers sleep


def test_a_caller_who_finds_the_pool_taken_runs_alone(make_pool):
    pool, entered, leave = make_pool(2), threading.Event(), threading.Event()
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
    def hold(argument, thread, threads):
        seen.append((thread, threads))
        entered.set()
        leave.wait(100)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
    def note(argument, thread, threads):
        seen.append((thread, threads))

    owner = threading.Thread(target=pool.run, args=(ctypes.cast(hold, ctypes.c_void_p).value, 0))
    owner.start()
    assert entered.wait(100)
    pool.run(ctypes.cast(note, ctypes.c_void_p).value, 0)
    assert (0, 1) in seen
    leave.set()
    owner.join(100)
    assert sorted(seen) == [(0, 1), (0, 2), (1, 2)]


def test_many_python_threads_share_a_pool(make_pool, rounds):
    pool, done = make_pool(2), []

    def work() -> None:
        for _ in range(100):
            words = np.zeros(24, np.int64)
            words[:2] = pool.state, 3
            pool.run(rounds.address("rounds"), words.ctypes.data)
            assert words[2] == 0 and words[8] == 3
        done.append(True)

    callers = [threading.Thread(target=work) for _ in range(4)]
    [caller.start() for caller in callers]
    [caller.join(300) for caller in callers]
    assert len(done) == 4


def test_a_closed_pool_ends_its_workers_and_still_runs(make_pool, rounds):
    pool = make_pool(3)
    run_rounds(pool, rounds, 1)
    workers = list(pool._workers)
    assert len(workers) == 2
    pool.close()
    assert not any(worker.is_alive() for worker in workers)
    assert list(run_rounds(pool, rounds, 4)) == [4, 0, 0]
    pool.close()


@pytest.mark.parametrize("started", [0, 1])
def test_a_caller_does_by_itself_what_no_threads_can_be_started_for(make_pool, rounds, monkeypatch, started):
    pool, start, there = make_pool(4), threading.Thread.start, iter(range(started))

    def start_few(thread):
        if next(there, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)
    monkeypatch.setattr(threading.Thread, "start", start_few)
    assert list(run_rounds(pool, rounds, 4)) == [4, 0, 0, 0]
    assert not pool._workers


def test_a_pool_of_one_starts_no_thread(make_pool, rounds):
    pool, before = make_pool(1), set(threading.enumerate())
    assert list(run_rounds(pool, rounds, 3)) == [3]
    assert set(threading.enumerate()) <= before


def test_the_number_of_threads_can_be_set(rounds):
    thread_pool.set_num_threads(3)
    assert thread_pool.get_num_threads() == 3 and (run_rounds(thread_pool.pool(), rounds, 2) == 2).all()
    with pytest.raises(ArgumentError, match="set_num_threads"):
        thread_pool.set_num_threads(0)


PROGRAM = """
import ctypes, os, sys, threading, time
import numpy as np
from tenon.llvm import machine_code
from tenon.runtime import thread_pool
from tenon.runtime.thread_pool import Pool, SignalledPool
spin = machine_code.compile('''
define void @spin(ptr %words, i32 %thread, i32 %threads) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %next = add i64 %i, 1
  %n = load volatile i64, ptr %words
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %out
out:
  %at = getelementptr i64, ptr %words, i32 1
  %old = atomicrmw add ptr %at, i64 1 seq_cst
  ret void
}''')
def run(pool, n=1000):
    words = np.array([n, 0], np.int64)
    pool.run(spin.address("spin"), words.ctypes.data)
    return int(words[1])
pools = [Pool(2), Pool(4), SignalledPool(3)]
assert [run(pool) for pool in pools] == [2, 4, 3]
"""

ENDINGS = {
    "falls off its end": "",
    "calls sys.exit": "sys.exit(0)",
    "dies of an exception": "raise SystemExit(0) from ValueError()",
    "has a daemon thread that runs regions all the time": """
        threading.Thread(target=lambda: [run(pools[0]) for _ in range(10**9)], daemon=True).start()
        time.sleep(0.05)""",
    "has a daemon thread in a region that does not end": """
        threading.Thread(target=run, args=(pools[0], 10**13), daemon=True).start()
        time.sleep(0.05)""",
    "has threads that outlive the main one": """
        threading.Thread(target=lambda: (time.sleep(0.1), print(run(pools[1])))).start()""",
    "forks, and both go on": """
        child = os.fork()
        assert [run(pool) for pool in pools] == [2, 4, 3] and run(thread_pool.pool()) == thread_pool.get_num_threads()
        if child: assert os.waitpid(child, 0)[1] == 0""",
    "forks while another thread is in a region": """
        threading.Thread(target=lambda: [run(pools[0], 10**5) for _ in range(10**9)], daemon=True).start()
        for _ in range(4):
            child = os.fork()
            if not child:
                for _ in range(3): assert [run(pool) for pool in pools] == [2, 4, 3]
                spin = machine_code.Library(machine_code.compile_object("define void @g() { ret void }")); spin.address("g")
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0""",
}


@pytest.mark.skipif(sys.platform != "linux", reason="fork and futex")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_cleanly_that(ending):
    script = PROGRAM + textwrap.dedent(ENDINGS[ending])
    quiet = "-Wignore:This process:DeprecationWarning"      # of Python 3.12 about every fork beside threads
    ended = subprocess.run([sys.executable, quiet, "-c", script], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
