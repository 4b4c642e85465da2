"""Branches and loops in compiled programs: native, with the values, the errors and the bits of the reference."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tenon as tn
from structured_graphs import arguments_for, structured_graphs
from tenon.errors import OutOfMemory, OutOfRange, TenonError
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph
from tenon.ops.define import define
from tenon.pipeline import compile
from tenon.runtime import inter_op_parallelism, parallel_profitability, stack_region
from tenon.runtime.program import Program
from tenon.runtime.thread_pool import set_num_threads

patient = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def program(text: str) -> Program:
    made = compile(parse_graph(text.strip()), backend="cpu")
    assert isinstance(made, Program)
    return made


def check(made: Program, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results, which are those of the reference."""
    found = made.run([x.copy() for x in arrays])
    for got, wanted in zip(found, interpret(made.graph, arrays), strict=True):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    return found


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch, three_threads: None) -> None:
    """Three threads, for every kernel that may be shared at all."""
    monkeypatch.setattr(parallel_profitability, "PARALLEL_WORK", 1)
    monkeypatch.setattr(parallel_profitability, "BARRIER_COST", 0)
    monkeypatch.setattr(inter_op_parallelism, "BARRIER_COST", 0)


# ---------------------------------------------------------------- random programs

@patient
@given(structured_graphs())
def test_random_programs_compute_what_the_reference_computes(graph: Graph) -> None:
    made = compile(graph, backend="cpu")
    for seed in range(2):
        check(made, *arguments_for(graph, seed))


@patient
@given(structured_graphs(depth=2, wide=1100))
def test_loops_too_large_for_one_kernel_do_so_too(graph: Graph) -> None:
    check(compile(graph, backend="cpu"), *arguments_for(graph))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(structured_graphs(depth=2, wide=600))
def test_threads_give_the_same_bits(many_threads: object, graph: Graph) -> None:
    arrays = arguments_for(graph)
    shared = compile(graph, backend="cpu").run(arrays)
    set_num_threads(1)
    alone = compile(graph, backend="cpu").run(arrays)
    set_num_threads(3)
    assert [x.tobytes() for x in shared] == [x.tobytes() for x in alone]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(structured_graphs(symbolic=True, depth=2))
def test_one_program_serves_all_sizes(graph: Graph) -> None:
    made = compile(graph, backend="cpu")
    for size in (2, 5, 3):
        check(made, *arguments_for(graph, B=size))


def test_a_symbol_that_no_input_of_a_fused_kernel_shows_is_that_of_the_run() -> None:
    made = program("""
def filled(x: f32[B, 3], flag: bool):
    def yes():
        def body():
            v0: f32[B, 3] = full_op(f32(2.0), shape=(B, 3))
            v1: f32[B, 3] = tanh(v0)
            return v1
        v0: f32[B, 3] = fused(body=body)
        return v0
    def no():
        v0: f32[B, 3] = full_op(f32(1.0), shape=(B, 3))
        return v0
    v0: f32[B, 3] = cond(flag, true=yes, false=no)
    v1: f32[B, 3] = add(v0, x)
    return v1
""")
    for size in (2, 5):
        check(made, np.ones((size, 3), np.float32), np.asarray(True))


# ---------------------------------------------------------------- how it is done

NEWTON = """
def newton(a: f32[N], i: i64, x: f32[N]):
    def more(a: f32[N], i: i64, x: f32[N]):
        v0: bool = greater(i, 0)
        return v0
    def step(a: f32[N], i: i64, x: f32[N]):
        v0: i64 = subtract(i, 1)
        v1: f32[N] = divide(a, x)
        v2: f32[N] = add(x, v1)
        v3: f32[N] = multiply(0.5, v2)
        return v0, v3
    v0: tuple[i64, f32[N]] = while_loop(a, i, x, constants=1, condition=more, body=step)
    return v0[0], v0[1]
"""


def newton(size: int) -> Program:
    return program(NEWTON.replace("N", str(size)))


@pytest.mark.parametrize("size", [16, 5000])
@pytest.mark.parametrize("turns", [0, 1, 2, 30])
def test_a_while_loop_runs_as_often_as_its_condition_holds(size: int, turns: int) -> None:
    a = np.linspace(1, 9, size, dtype=np.float32)
    left, root = check(newton(size), a, np.asarray(turns), a)
    assert left == 0
    if turns == 30:
        np.testing.assert_allclose(root, np.sqrt(a), rtol=1e-6)


def test_a_loop_of_little_work_is_one_kernel() -> None:
    assert newton(16).plan.labels == ["while_loop_0", "end"]


def test_what_a_larger_loop_carries_is_not_copied_between_turns() -> None:
    labels = newton(5000).plan.labels
    turn = labels[labels.index("jump unless"):labels.index("again")]
    assert "copy" not in turn and "greater_0" in labels


SCAN = """
def run(w: f32[N, N], h: f32[5, N], xs: f32[T, 5, N]):
    def step(w: f32[N, N], h: f32[5, N], x: f32[5, N]):
        v0: f32[5, N] = matmul(h, w)
        v1: f32[5, N] = add(v0, x)
        v2: f32[5, N] = tanh(v1)
        return v2, v2
    v0: tuple[f32[5, N], f32[T, 5, N]] = scan(w, h, xs, constants=1, carried=1, length=T, body=step, reverse=R)
    return v0[0], v0[1]
"""


def recurrent(size: int, length: int, reverse: bool) -> Program:
    text = SCAN.replace("N", str(size)).replace("T,", f"{length},").replace("=T", f"={length}")
    return program(text.replace("R)", f"{reverse})"))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [4, 300])
@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_scan_goes_along_its_sequences(size: int, length: int, reverse: bool) -> None:
    random = np.random.default_rng(0)
    shapes = (size, size), (5, size), (length, 5, size)
    check(recurrent(size, length, reverse), *(random.normal(size=s).astype(np.float32) * 0.1 for s in shapes))


def test_rows_of_sequences_and_stacks_are_not_copied() -> None:
    labels = recurrent(300, 7, False).plan.labels
    assert "copy" not in labels[:labels.index("jump while")]      # afterwards the last state is, to its own memory


@pytest.mark.parametrize("kind", ["f32", "f64", "i32"])
@pytest.mark.parametrize("weights", [(130, 70), (400, 300), (37, 41)])
def test_transposed_weights_of_a_loop_are_packed_once(kind: str, weights: tuple[int, int]) -> None:
    depth, columns = weights
    made = program(f"""
def run(w: {kind}[{columns}, {depth}], u: {kind}[{depth}, {columns}], h: {kind}[7, {depth}]):
    def step(w: {kind}[{columns}, {depth}], u: {kind}[{depth}, {columns}], h: {kind}[7, {depth}]):
        v0: {kind}[{depth}, {columns}] = permute(w, axes=(1, 0))
        v1: {kind}[7, {columns}] = matmul(h, v0)
        v2: {kind}[{columns}, {depth}] = permute(u, axes=(1, 0))
        v3: {kind}[7, {depth}] = matmul(v1, v2)
        v4: {kind}[7, {depth}] = subtract(v3, h)
        return v4
    v0: {kind}[7, {depth}] = scan(w, u, h, constants=2, carried=1, length=30, body=step, reverse=False)
    return v0
""")
    labels = made.plan.labels
    assert sum("packing" in x for x in labels[:labels.index("jump while")]) == 2
    random, dtype = np.random.default_rng(0), made.graph.params[0].dtype.numpy
    scale = 1 if kind == "i32" else 0.3 * depth**-0.5          # so that 30 turns neither grow nor vanish
    arrays = [(random.normal(size=p.shape) * scale).astype(dtype) for p in made.graph.params]
    got, wanted = made.run(arrays)[0], interpret(made.graph, arrays)[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_threads_pack_the_same_weights(many_threads: object) -> None:
    arrays = [np.random.default_rng(k).normal(size=s).astype(np.float32) * 0.1
              for k, s in enumerate(((300, 300), (5, 300), (7, 5, 300)))]
    made = recurrent(300, 7, False)
    shared = made.run(arrays)
    set_num_threads(1)
    assert [x.tobytes() for x in shared] == [x.tobytes() for x in made.run(arrays)]


def test_carried_values_may_change_places() -> None:
    for size in (3, 4000):
        made = program("""
def turn(i: i64, x: f32[N], y: f32[N], z: f32[N]):
    def more(i: i64, x: f32[N], y: f32[N], z: f32[N]):
        v0: bool = greater(i, 0)
        return v0
    def step(i: i64, x: f32[N], y: f32[N], z: f32[N]):
        v0: i64 = subtract(i, 1)
        v1: f32[N] = add(x, 1.0)
        return v0, y, z, v1
    v0: tuple[i64, f32[N], f32[N], f32[N]] = while_loop(i, x, y, z, constants=0, condition=more, body=step)
    return v0[1], v0[2], v0[3]
""".replace("N", str(size)))
        for turns in range(5):
            check(made, np.asarray(turns), *(np.full(size, k, np.float32) for k in range(3)))


def test_what_a_loop_reads_from_outside_is_kept_through_all_turns() -> None:
    made = program("""
def kept(x: f32[4000], ws: f32[6, 4000]):
    def step(fixed: f32[4000], h: f32[4000], w: f32[4000]):
        v0: f32[4000] = add(h, fixed)
        v1: f32 = max(v0, axis=(0,), keepdims=False)
        v2: f32[4000] = broadcast_to(v1, shape=(4000,))
        v3: f32[4000] = cumsum(v2, axis=0, reverse=False)
        v4: f32[4000] = multiply(v3, w)
        return v4
    v0: f32[4000] = cumsum(x, axis=0, reverse=False)
    v1: f32[4000] = exp(x)
    v2: f32[4000] = scan(v0, v1, ws, constants=1, carried=1, length=6, body=step, reverse=False)
    return v2
""")
    random = np.random.default_rng(1)
    x, ws = random.normal(size=4000) * 1e-3, random.normal(size=(6, 4000)) * 1e-3
    check(made, x.astype(np.float32), ws.astype(np.float32))


# ---------------------------------------------------------------- errors

ROWS = """
def rows(table: f32[5, 4], i: i64):
    def more(table: f32[5, 4], i: i64, x: f32[4]):
        v0: bool = less(i, 1000)
        return v0
    def step(table: f32[5, 4], i: i64, x: f32[4]):
        v0: i64 = add(i, 1)
        v1: f32[4] = structure_test_row(table, i)
        v2: f32[4] = add(x, v1)
        return v0, v2
    v0: f32[4] = full_op(f32(0.0), shape=(4,))
    v1: tuple[i64, f32[4]] = while_loop(table, i, v0, constants=1, condition=more, body=step)
    return v1[1]
"""
row = define("structure_test_row", public=False, type=lambda x, k: x.with_shape(x.shape[1:]), ref=lambda x, k: x[k],
             compute=lambda s, i, x, k: x((s.index(k(()), x.shape[0]), *i)))


def _fail_at_three(x: np.ndarray) -> np.ndarray:
    if x == 3:
        raise ValueError("three is too many")
    return x


fails = define("structure_test_fails", public=False, type=lambda x: x, ref=_fail_at_three)


def test_an_index_out_of_range_ends_the_loop() -> None:
    made = program(ROWS)
    table = np.ones((5, 4), np.float32)
    for _ in range(2):
        with pytest.raises(OutOfRange, match="index 5"):
            made.run([table, np.asarray(0)])
    np.testing.assert_array_equal(made.run([table, np.asarray(1000)])[0], np.zeros(4))


def test_an_error_of_a_host_step_ends_the_loop() -> None:
    made = program("""
def host(i: i64):
    def more(i: i64):
        v0: bool = less(i, 100)
        return v0
    def step(i: i64):
        v0: i64 = structure_test_fails(i)
        v1: i64 = add(v0, 1)
        return v1
    v0: i64 = while_loop(i, constants=0, condition=more, body=step)
    return v0
""")
    for _ in range(2):
        with pytest.raises((TenonError, ValueError), match="three is too many"):
            made.run([np.asarray(0)])
        assert made.run([np.asarray(4)])[0] == 100


def test_callers_do_not_meet() -> None:
    made = newton(5000)
    inputs = [np.full(5000, k + 1.0, np.float32) for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda a: made.run([a, np.asarray(30), a])[1], inputs))
    for a, got in zip(inputs, found, strict=True):
        np.testing.assert_allclose(got, np.sqrt(a), rtol=1e-6)


def test_a_donated_argument_may_hold_a_result() -> None:
    made = newton(5000)
    a, x = np.full(5000, 2.0, np.float32), np.full(5000, 2.0, np.float32)
    results = made.run([a, np.asarray(30), x], donated={2})
    np.testing.assert_allclose(results[1], np.sqrt(a), rtol=1e-6)


@pytest.mark.parametrize("kind", ["i8", "u8", "i32", "i64", "u64"])
def test_a_switch_takes_the_nearest_branch(kind: str) -> None:
    made = program(f"""
def choose(i: {kind}, x: f32[3]):
    def first(x: f32[3]):
        v0: f32[3] = add(x, 1.0)
        return v0
    def second(x: f32[3]):
        return x
    v0: f32[3] = switch(i, x, branches=(first, second, first))
    return v0
""")
    dtype = made.graph.params[0].dtype.numpy
    for index in (0, 1, 2, 3, np.iinfo(dtype).max, np.iinfo(dtype).min):
        check(made, np.asarray(index, dtype), np.zeros(3, np.float32))



# ---------------------------------------------------------------- stacks

def backwards() -> Callable[..., Any]:
    """The gradients of a while_loop of unknown length."""
    def run(x: Any, w: Any, n: Any) -> Any:
        return tn.while_loop(lambda s: s[1] < n, lambda s: (tn.tanh(s[0] * w + 0.1), s[1] + 1), (x, tn.tensor(0)))[0].sum()
    return tn.grad(run, argnums=(0, 1))


@pytest.mark.parametrize("size", [3, 4000])
def test_the_stack_of_a_loop_grows_with_its_turns(size: int) -> None:
    gradient = backwards()
    jitted = tn.jit(gradient, fullgraph=True)
    x, w = (tn.asarray(np.linspace(a, 1.5, size)) for a in (-1, 0.5))
    for turns in (0, 1, 2, 40, 3):
        for got, wanted in zip(jitted(x, w, tn.tensor(turns)), gradient(x, w, tn.tensor(turns)), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-12)


def test_threads_agree_about_stacks(many_threads: object) -> None:
    test_the_stack_of_a_loop_grows_with_its_turns(4000)


def test_a_stack_without_memory_is_an_error_and_the_next_run_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (np.linspace(a, 1.5, 4000) for a in (-1, 0.5))
    graph = tn.jit(backwards()).capture(tn.asarray(x), tn.asarray(w), tn.tensor(5)).graph
    made = compile(graph, backend="cpu")
    monkeypatch.setattr(stack_region, "physical_memory", lambda: 1 << 20)
    with pytest.raises(OutOfMemory, match="keeps of its turns"):
        made.run([x, w, np.asarray(1000)])
    check(made, x, w, np.asarray(5))


def test_a_host_step_finds_rows_where_nothing_else_needs_memory() -> None:
    made = program("""
def rows(xs: f32[9, 4]):
    def step(x: f32[4]):
        v0: f32[4] = structured_test_shift(x)
        return v0
    v0: f32[9, 4] = scan(xs, constants=0, carried=0, length=9, body=step, reverse=False)
    return v0
""")
    assert made.peak_bytes == 0
    check(made, np.arange(36, dtype=np.float32).reshape(9, 4))


def test_a_row_written_in_a_loop_costs_no_copy_of_the_others() -> None:
    made = program("""
def fill(cache: f32[900, 70], n: i64):
    def more(n: i64, i: i64, c: f32[900, 70]):
        v0: bool = less(i, n)
        return v0
    def step(n: i64, i: i64, c: f32[900, 70]):
        v0: i64 = add(i, 1)
        v1: f32 = cast(v0, dtype=f32)
        v2: f32[70] = broadcast_to(v1, shape=(70,))
        v3: f32[900, 70] = put(c, i, v2, axis=0, reduce='set')
        v4: f32[900, 70] = put(v3, i, v2, axis=0, reduce='add')
        return v0, v4
    v0: i64 = full_op(i64(0), shape=())
    v1: f32[900, 70] = exp(cache)
    v2: tuple[i64, f32[900, 70]] = while_loop(n, v0, v1, constants=1, condition=more, body=step)
    return v2[1]
""")
    assert all((0, 0) in unit.facts.in_place for unit in made.kernels if unit.name == "put")
    assert made.peak_bytes < 1.5 * 900 * 70 * 4     # where the loop begins; its own is the result
    check(made, np.zeros((900, 70), np.float32), np.asarray(20))
    with pytest.raises(OutOfRange):
        made.run([np.zeros((900, 70), np.float32), np.asarray(901)])
