"""Which loops several threads share, and those that one of them runs alone, with its checks, callbacks and stacks."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import OutOfRange
from tenon.graph.text import parse_graph
from tenon.ops.define import define
from tenon.pipeline import compile
from tenon.program import step_executor
from tenon.runtime.program import Program
from tenon.runtime.thread_pool import set_num_threads

pytestmark = pytest.mark.usefixtures("two_threads")
LARGE = 400_000         # elements of a kernel that threads share, beside the loops


def _fail_at_three(x: np.ndarray) -> np.ndarray:
    if x == 3:
        raise ValueError("three is too many")
    return x


fails = define("worth_test_fails", public=False, type=lambda x: x, ref=_fail_at_three)
row = define("worth_test_row", public=False, type=lambda x, k: x.with_shape(x.shape[1:]), ref=lambda x, k: x[k],
             compute=lambda s, i, x, k: x((s.index(k(()), x.shape[0]), *i)))


def program(text: str) -> Program:
    made = compile(parse_graph(text.strip().replace("LARGE", str(LARGE))), backend="cpu")
    assert isinstance(made, Program)
    return made


def codes_by_skip(made: Program) -> tuple[list[int], list[int]]:
    """What the rows do that thread 0 runs alone, and all others."""
    rows = made.plan.steps.reshape(-1, step_executor.STEP_WORDS)
    alone = {k for start, row in enumerate(rows) if row[0] == step_executor.SKIP for k in range(start + 1, row[1])}
    inside, outside = [], []
    for k, row in enumerate(rows):
        (inside if k in alone else outside).append(int(row[0]))
    return inside, outside


LOOP = """
def run(w: f32[N, N], h: f32[B, N], x: f32[LARGE]):
    def step(w: f32[N, N], h: f32[B, N]):
        v0: f32[B, N] = matmul(h, w)
        v1: f32[B, N] = tanh(v0)
        return v1
    v0: f32[LARGE] = exp(x)
    v1: f32[B, N] = scan(w, h, constants=1, carried=1, length=9, body=step, reverse=False)
    return v0, v1
"""


@pytest.mark.parametrize("rows, width, together", [(3, 64, False), (64, 128, False), (64, 512, True)])
def test_a_loop_is_shared_where_a_turn_saves_more_than_its_meetings_take(rows: int, width: int, together: bool) -> None:
    made = program(LOOP.replace("N", str(width)).replace("B", str(rows)))
    random = np.random.default_rng(0)
    w = random.normal(size=(width, width)).astype(np.float32) / np.float32(width ** 0.5)
    h, x = random.normal(size=(rows, width)).astype(np.float32), np.zeros(LARGE, np.float32)
    shared = made.run([w, h, x])
    assert made.plan.threads == 2
    inside, outside = codes_by_skip(made)
    assert (step_executor.JUMP_WHILE in outside) == together and (step_executor.JUMP_WHILE in inside) == (not together)
    assert step_executor.BARRIER not in inside and step_executor.KERNEL_ALL not in inside
    set_num_threads(1)
    assert [a.tobytes() for a in made.run([w, h, x])] == [a.tobytes() for a in shared]


ROWS = """
def rows(table: f32[5, 4000], i: i64, x: f32[LARGE]):
    def more(table: f32[5, 4000], i: i64, x: f32[4000]):
        v0: bool = less(i, 1000)
        return v0
    def step(table: f32[5, 4000], i: i64, x: f32[4000]):
        v0: i64 = add(i, 1)
        v1: f32[4000] = worth_test_row(table, i)
        v2: f32[4000] = add(x, v1)
        return v0, v2
    v0: f32[LARGE] = exp(x)
    v1: f32[4000] = full_op(f32(0.0), shape=(4000,))
    v2: tuple[i64, f32[4000]] = while_loop(table, i, v1, constants=1, condition=more, body=step)
    v3: f32[LARGE] = sqrt(v0)
    return v2[1], v3
"""


def test_what_fails_in_a_loop_of_one_thread_ends_the_program() -> None:
    made = program(ROWS)
    table, x = np.ones((5, 4000), np.float32), np.zeros(LARGE, np.float32)
    for _ in range(20):
        with pytest.raises(OutOfRange, match="index 5"):
            made.run([table, np.asarray(0), x])
        zeros, ones = made.run([table, np.asarray(1000), x])
        assert not zeros.any() and (ones == 1).all()
    inside, outside = codes_by_skip(made)
    assert step_executor.HOST in inside and step_executor.HOST in outside and step_executor.BARRIER not in inside


HOST = """
def host(i: i64, x: f32[LARGE]):
    def more(i: i64):
        v0: bool = less(i, 100)
        return v0
    def step(i: i64):
        def again(i: i64):
            v0: i64 = worth_test_fails(i)
            return v0
        v0: i64 = scan(i, constants=0, carried=1, length=2, body=again, reverse=False)
        v1: i64 = add(v0, 1)
        return v1
    v0: f32[LARGE] = exp(x)
    v1: i64 = while_loop(i, constants=0, condition=more, body=step)
    v2: f32[LARGE] = sqrt(v0)
    return v1, v2
"""


def test_an_error_of_a_host_step_in_loops_of_one_thread_ends_the_program() -> None:
    made, x = program(HOST), np.zeros(LARGE, np.float32)
    for _ in range(20):
        with pytest.raises(Exception, match="three is too many"):
            made.run([np.asarray(0), x])
        last, ones = made.run([np.asarray(4), x])
        assert last == 100 and (ones == 1).all()
    inside, _ = codes_by_skip(made)
    assert inside.count(step_executor.HOST) >= 1 and step_executor.BARRIER not in inside


def test_a_loop_of_one_thread_may_keep_what_its_gradient_needs() -> None:
    def run(x: Any, n: Any) -> Any:
        return tn.while_loop(lambda s: s[1] < n, lambda s: (tn.tanh(s[0] * 1.5), s[1] + 1), (x, tn.tensor(0)))[0].sum()

    def beside(x: Any, n: Any, large: Any) -> Any:
        return tn.grad(run)(x, n), tn.exp(large)
    jitted = tn.jit(beside, fullgraph=True)
    x, large = tn.asarray(np.linspace(-1, 1, 3000)), tn.zeros(LARGE)
    programs: list[Any] = [jitted.capture(x, tn.tensor(0), large).program]
    for turns in (0, 1, 40, 700, 3):
        got, ones = jitted(x, tn.tensor(turns), large)
        np.testing.assert_allclose(got.numpy(), tn.grad(run)(x, tn.tensor(turns)).numpy(), rtol=1e-12)
        assert (ones.numpy() == 1).all()
    inside, _ = codes_by_skip(programs[0])
    assert step_executor.ALLOCATE in inside and step_executor.FOLLOW in inside and step_executor.BARRIER not in inside


def test_callers_at_the_same_time_do_without_the_others() -> None:
    from concurrent.futures import ThreadPoolExecutor
    made, table, x = program(ROWS), np.ones((5, 4000), np.float32), np.zeros(LARGE, np.float32)

    def call(k: int) -> float:
        try:
            return float(made.run([table, np.asarray(1000 if k % 2 else 3), x])[0].sum())
        except OutOfRange:
            return -1.0
    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(call, range(40))) == [-1.0, 0.0] * 20


INTERRUPTED = """
import signal, numpy as np, tenon as tn
tn.set_num_threads(2)

@tn.jit
def run(a, large):
    def more(state): return state[0].max() < 1e6
    def step(state):
        x, rows = state
        inner = tn.fori_loop(0, 3, lambda k, y: 0.5 * (y + a / y), x)
        return inner, rows + 1
    x, turns = tn.while_loop(more, step, (a, tn.tensor(0)))
    return x.sum() + tn.exp(large).sum() + tn.sqrt(tn.exp(large)).sum()

a, large = tn.asarray(np.full(5000, 2.0, np.float32)), tn.zeros(400_000)
nothing = tn.asarray(np.full(5000, np.inf, np.float32))
run(nothing, large)
def handler(*_): raise TimeoutError
signal.signal(signal.SIGALRM, handler)
for _ in range(2):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 10)    # again: Python drops an error within a finalizer
        run(a, large)
    except TimeoutError:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("ended")
    run(nothing, large)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX timers")
def test_a_signal_ends_a_loop_of_one_thread_while_another_waits() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=300,
                           env=os.environ | {"TENON_THREADS": "2"})
    assert ended.stdout.split() == ["ended", "ended"], ended.stderr
