"""Chains of steps that do not depend on each other, each on a thread of its own."""

import random
import threading

import numpy as np
import pytest

import tenon as tn
from tenon.program import step_executor
from tenon.runtime import inter_op_parallelism as rules
from tenon.runtime.inter_op_parallelism import ThreadJob, side_by_side
from tenon.runtime.program import Program
from tenon.runtime.thread_pool import set_num_threads

WORK = 90_000


def job(reads: str, writes: str, work: int = WORK) -> ThreadJob:
    return ThreadJob(reads, writes, work, True, work // 5)


def test_equal_chains_get_a_thread_each() -> None:
    steps = [job("x", "a"), job("a", "b"), job("x", "c"), job("c", "d"), job("bd", "y")]
    assert side_by_side(steps, 2) == [{0: 0, 1: 0, 2: 1, 3: 1}]


def test_interleaved_chains_do_too() -> None:
    steps = [job("x", "a"), job("x", "c"), job("a", "b"), job("c", "d")]
    assert side_by_side(steps, 2) == [{0: 0, 2: 0, 1: 1, 3: 1}]


def test_what_comes_before_both_is_cut() -> None:
    steps = [job("x", "z"), job("z", "a"), job("z", "b"), job("ab", "y")]
    assert side_by_side(steps, 2) == [{1: 0, 2: 1}]


def test_the_last_of_three_equal_steps_is_cut() -> None:
    assert side_by_side([job("x", name) for name in "abc"], 2) == [{0: 0, 1: 1}]


@pytest.mark.parametrize("steps", [
    [job("x", "a"), job("a", "b")],                                     # one chain
    [job("x", "a"), job("x", "b", 10 * WORK)],                          # one of them takes much longer
    [job("x", "a", 100), job("x", "b", 100)],                           # not worth a meeting
    [job("x", "a"), None, job("x", "b")],                               # something that has to be in its place
    [job("x", "a"), job("y", "x")],                                     # writes what the first reads
    [job("x", "a"), job("y", "a")],                                     # writes what the first writes
    [],
])
def test_other_steps_are_cut(steps: list[ThreadJob | None]) -> None:
    assert side_by_side(steps, 2) == []


def test_many_small_steps_that_cannot_be_cut_are_shared_out() -> None:
    steps = [ThreadJob("x", chr(ord("a") + k), 9_000, False) for k in range(12)]
    (region,) = side_by_side(steps, 3)
    assert sorted(region.values()) == [k for k in range(3) for _ in range(4)]


@pytest.mark.parametrize("threads", [2, 3])
def test_where_no_chains_are_looked_for_there_is_nothing_to_gain(threads: int, monkeypatch) -> None:
    rng, skipped = random.Random(threads), []
    may_gain = rules._may_gain
    for _ in range(300):
        steps = [None if rng.random() < 0.02 else
                 ThreadJob(rng.choices("abcdefgh", k=2), rng.choice("ijklmnabc"), rng.choice([500, 20_000, 10 ** 7]),
                     rng.random() < 0.8, rng.choice([0, 3_000])) for _ in range(20)]
        found = side_by_side(steps, threads)
        with monkeypatch.context() as m:
            m.setattr(rules, "_may_gain", lambda *given: skipped.append(not may_gain(*given)) or True)
            assert side_by_side(steps, threads) == found
    assert any(skipped) and not all(skipped)


# ---------------------------------------------------------------- in programs

def branches(x: tn.Tensor, *weights: tn.Tensor) -> tn.Tensor:
    return tn.concat([tn.relu(x @ v) @ w for v, w in zip(weights[::2], weights[1::2], strict=True)], axis=1)


def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(64, 256)).astype(np.float32), *random.normal(size=(8, 256, 256)).astype(np.float32)]


def compiled() -> Program:
    made = tn.pipeline.compile(tn.jit(branches).graph(*map(tn.asarray, arrays())), backend="cpu")
    assert isinstance(made, Program)
    return made


def threads_of(made: Program) -> list[int]:
    """Of every kernel that one thread runs."""
    rows = made.plan.steps.reshape(-1, step_executor.STEP_WORDS)
    return [int(row[5]) for row in rows if row[0] == step_executor.KERNEL_ONE]


def test_branches_of_a_program_run_side_by_side_with_the_same_bits(two_threads: None) -> None:
    made = compiled()
    shared = made.run(arrays())
    assert sorted(threads_of(made)) == [0] * 4 + [1] * 4
    set_num_threads(1)
    alone = compiled().run(arrays())
    assert [x.tobytes() for x in shared] == [x.tobytes() for x in alone]


def test_callers_at_the_same_time_each_get_all_branches(two_threads: None) -> None:
    made = compiled()
    (wanted,) = made.run(arrays())
    found: list[np.ndarray] = []
    callers = [threading.Thread(target=lambda: found.extend(made.run(arrays())[0] for _ in range(10)))
               for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 30 and all(x.tobytes() == wanted.tobytes() for x in found)
