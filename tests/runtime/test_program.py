"""Compiled programs: they compute what the reference computes, own their memory, fail cleanly, and run side by side."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings

from graphs import arrays_for, assert_close, graphs
from tenon.errors import ArgumentError, OutOfRange, TenonError
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph
from tenon.ops.define import define
from tenon.pipeline import CPU, compile
from tenon.program.step_executor import driver
from tenon.runtime.arena_planning import aligned_bytes
from tenon.runtime.program import Program
from tenon.runtime.run_frame import Frame
from tenon.runtime.thread_pool import pool, set_num_threads
from tenon.types import TensorType, float32


def _fail(x: np.ndarray) -> np.ndarray:
    raise IndexError("nothing there")


host_double = define("program_test_double", public=False, type=lambda x: x, ref=lambda x: x * 2)
host_fails = define("program_test_fails", public=False, type=lambda x: x, ref=_fail)
checked_row = define(
    "program_test_row", public=False, type=lambda x, k: TensorType(x.dtype, (*k.shape, *x.shape[1:])),
    ref=lambda x, k: x[k], compute=lambda s, i, x, k: x((s.index(k((i[0],)), x.shape[0]), *i[1:])))


def program(text: str, **options: object) -> Program:
    made = compile(parse_graph(text), backend="cpu", **options)
    assert isinstance(made, Program)
    return made


def lines(*rows: str) -> str:
    return "\n    ".join(rows)


CHAIN = lines("def f(x: f32[4, 5], w: f32[5, 3]):", "v0: f32[4, 3] = matmul(x, w)", "v1: f32[4, 3] = exp(v0)",
              "v2: f32[4] = sum(v1, axis=(1,), keepdims=False, dtype=f32)", "v3: f32[2, 2] = reshape(v2, shape=(2, 2))",
              "return v3, v1")


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_random_graphs_compute_what_the_reference_computes(graph: Graph) -> None:
    arrays = arrays_for(graph)
    assert_close(compile(graph, backend="cpu").run(arrays), interpret(graph, arrays))


@settings(max_examples=15, deadline=None)
@given(graphs(symbolic=True))
def test_one_program_serves_all_sizes(graph: Graph) -> None:
    made = compile(graph, backend="cpu")
    for size in (2, 3, 7, 2):
        arrays = arrays_for(graph, B=size)
        assert_close(made.run(arrays), interpret(graph, arrays))


def test_results_own_their_memory() -> None:
    made = program(lines("def f(x: f32[4]):", "v0: f32[4] = exp(x)", "v1: f32[2, 2] = reshape(v0, shape=(2, 2))",
                         "return x, v0, v1, v0"))
    x = np.ones(4, np.float32)
    results = made.run([x])
    for k, one in enumerate([x, *results]):
        assert one.flags.owndata
        assert not any(np.shares_memory(one, other) for other in results[k:])


def test_a_reshape_costs_no_step() -> None:
    made = program(CHAIN)
    assert not any(label.startswith(("reshape", "copy")) for label in made.plan.labels)


def test_constants_and_equal_kernels_are_shared() -> None:
    made = program(lines("def f(x: f32[2, 2]):", "v0: f32[2, 2] = constant(data=(1.0, 2.0, 3.0, 4.0), dtype=f32, "
                         "shape=(2, 2))", "v1: f32[2, 2] = matmul(x, v0)", "v2: f32[2, 2] = matmul(v1, v0)",
                         "v3: f32[2, 2] = matmul(v2, v0)", "return v3"))
    assert len(made.kernels) == 1
    x = np.eye(2, dtype=np.float32)
    assert_close(made.run([x]), interpret(made.graph, [x]))


def test_arguments_in_any_memory_order_are_taken() -> None:
    made = program(CHAIN)
    x, w = arrays_for(made.graph)
    expected = made.run([x, w])
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view()
    raw[:] = np.frombuffer(x.tobytes(), np.uint8)
    unaligned = raw.view(np.float32).reshape(x.shape)
    for other in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x.astype(">f4"), unaligned):
        assert_close(made.run([other, w]), expected)


def test_arguments_of_the_wrong_type_are_refused() -> None:
    made = program(CHAIN)
    x, w = arrays_for(made.graph)
    with pytest.raises(ArgumentError, match="takes 2 arrays, not 1"):
        made.run([x])
    with pytest.raises(ArgumentError, match=r"x is f32\[4, 5\], not f64\[4, 5\]"):
        made.run([x.astype(np.float64), w])
    with pytest.raises(TenonError):
        made.run([x[:2], w])


def test_host_steps_run_between_kernels() -> None:
    made = program(lines("def f(x: f32[3]):", "v0: f32[3] = exp(x)", "v1: f32[3] = program_test_double(v0)",
                         "v2: f32[3] = tanh(v1)", "return v2"))
    x = np.zeros(3, np.float32)
    np.testing.assert_allclose(made.run([x])[0], np.tanh(2 * np.exp(x)), rtol=1e-6)


def test_an_error_of_a_host_step_is_raised_at_the_users_line() -> None:
    made = program(lines("def f(x: f32[3]):", "v0: f32[3] = program_test_fails(x)  # train.py:7",
                         "v1: f32[3] = exp(v0)", "return v1"))
    for _ in range(2):
        with pytest.raises(OutOfRange, match="program_test_fails: nothing there") as error:
            made.run([np.zeros(3, np.float32)])
        assert str(error.value.where) == "train.py:7"


ROWS = lines("def f(x: f32[3, 2], k: i64[2]):", "v0: f32[2, 2] = program_test_row(x, k)  # train.py:9", "return v0")


def test_an_index_out_of_range_is_an_error_at_the_users_line() -> None:
    made = program(ROWS)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(made.run([x, np.array([2, -1])])[0], x[[2, 2]])
    with pytest.raises(OutOfRange, match="index 3 is out of range for an axis of size 3") as error:
        made.run([x, np.array([0, 3])])
    assert str(error.value.where) == "train.py:9"
    np.testing.assert_array_equal(made.run([x, np.array([0, 1])])[0], x[:2])


def test_there_is_nothing_to_take_from_an_empty_axis() -> None:
    made = program(lines("def f(x: f32[0], k: i64[2]):", "v0: f32[2] = program_test_row(x, k)", "return v0"))
    with pytest.raises(OutOfRange, match="index 1 is out of range for an axis of size 0"):
        made.run([np.zeros(0, np.float32), np.array([1, 1])])


def test_sums_over_nothing_are_zero_whatever_is_done_to_it_before() -> None:
    made = program(lines("def f(x: f32[3, 0, 2]):", "v0: f32[0, 6] = reshape(x, shape=(0, 6))",
                         "v1: f32[0, 6] = tanh(v0)", "v2: f32[6] = sum(v1, axis=(0,), keepdims=False, dtype=f32)",
                         "return v2, v1"))
    total, nothing = made.run([np.zeros((3, 0, 2), np.float32)])
    assert total.tolist() == [0.0] * 6 and nothing.shape == (0, 6)


UPDATE = lines("def f(w: f32[64], g: f32[64]):", "v0: f32[64] = multiply(g, 0.5)", "v1: f32[64] = subtract(w, v0)",
               "return v1")


def test_a_donated_argument_gives_its_memory_to_a_result() -> None:
    made = program(UPDATE)
    w, g = arrays_for(made.graph)
    expected = w - g * np.float32(0.5)
    (plain,) = made.run([w, g])
    assert plain is not w
    (updated,) = made.run([w, g], donated={0})
    assert updated is w
    np.testing.assert_array_equal(updated, expected)
    np.testing.assert_array_equal(plain, expected)


def test_several_donated_arguments_are_updated_by_one_kernel() -> None:
    made = program(lines("def f(w: f32[1003], m: f32[1003], v: f32[1003], g: f32[1003]):",
                         "v0: f32[1003] = multiply(m, 0.9)", "v1: f32[1003] = add(v0, g)",
                         "v2: f32[1003] = multiply(g, g)", "v3: f32[1003] = add(v, v2)",
                         "v4: f32[1003] = multiply(v1, v3)", "v5: f32[1003] = subtract(w, v4)", "return v5, v1, v3"))
    assert len(made.kernels) == 1
    arguments = arrays_for(made.graph)
    expected = made.run(arguments)
    updated = made.run(arguments, donated={0, 1, 2})
    assert all(new is old for new, old in zip(updated, arguments, strict=False))
    for got, want in zip(updated, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_element_that_a_later_result_reads_is_not_overwritten() -> None:
    made = program(lines("def f(x: f32):", "v0: f32 = negative(x)", "v1: f32 = tanh(v0)", "return v0, v1"))
    x = np.array(0.5, np.float32)
    expected = made.run([x])
    for got, want in zip(made.run([x], donated={0}), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_donated_argument_that_is_read_later_keeps_its_memory() -> None:
    made = program(lines("def f(w: f32[4, 4]):", "v0: f32[4, 4] = exp(w)", "v1: f32[4, 4] = matmul(w, v0)",
                         "return v0, v1"))
    (w,) = arrays_for(made.graph)
    expected = interpret(made.graph, [w])
    results = made.run([w], donated={0})
    assert results[0] is not w
    assert_close(results, expected)


def test_a_result_in_the_memory_of_an_input_is_written_after_that_input_is_read() -> None:
    made = program(lines("def f(x: f32[64]):", "v0: f32[64] = program_test_double(x)", "v1: f32[64] = multiply(x, 0.5)",
                         "v2: f32[64] = add(v0, v1)", "v3: f32[64] = program_test_double(v1)",
                         "v4: f32[64] = program_test_double(v2)", "return v3, v4"))
    assert len(made.kernels) == 1
    (x,) = arrays_for(made.graph)
    assert_close(made.run([x]), interpret(made.graph, [x]))


def test_a_program_that_fails_leaves_donated_arguments_as_they_were() -> None:
    made = program(lines("def f(w: f32[3, 2], k: i64[3]):", "v0: f32[3, 2] = program_test_row(w, k)",
                         "v1: f32[3, 2] = subtract(w, v0)", "return v1"))
    w, before = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    with pytest.raises(OutOfRange):
        made.run([w, np.array([0, 1, 5])], donated={0})
    np.testing.assert_array_equal(w, before)
    (after,) = made.run([w, np.array([0, 1, 2])], donated={0})
    np.testing.assert_array_equal(after, before - before)


def test_a_program_runs_from_several_threads_at_once() -> None:
    made = program(CHAIN)
    arguments = [arrays_for(made.graph, seed) for seed in range(8)]
    expected = [interpret(made.graph, arrays) for arrays in arguments]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            for found, want in zip(threads.map(made.run, arguments), expected, strict=True):
                assert_close(found, want)


LARGE = lines("def f(x: f32[300, 200], w: f32[200, 300]):", "v0: f32[300, 200] = exp(x)",
              "v1: f32[300, 300] = matmul(v0, w)", "v2: f32[300, 300] = program_test_double(v1)",
              "v3: f32[300] = max(v2, axis=(1,), keepdims=False)", "v4: f32[200, 300] = permute(v0, axes=(1, 0))",
              "v5: f32[200, 300] = add(v4, w)", "return v3, v5")


def test_threads_give_the_same_bits_as_one(three_threads: None) -> None:
    made = program(LARGE)
    arrays = arrays_for(made.graph)
    several = made.run(arrays)
    assert made.plan.threads == 3 and "barrier" in made.plan.labels
    set_num_threads(1)
    alone = made.run(arrays)
    assert made.plan.threads == 1 and "barrier" not in made.plan.labels
    for one, other in zip(several, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_close(alone, interpret(made.graph, arrays), 1e-3)


def test_a_run_uses_the_memory_of_its_layout_if_more_threads_are_set_meanwhile(three_threads: None) -> None:
    made = program(LARGE)
    arrays = arrays_for(made.graph)
    expected, layout = made.run(arrays), made.plan
    needed = layout.memory.size + layout.scratch * layout.threads
    arena, frame = aligned_bytes(needed + 8 * layout.scratch), Frame(layout, driver())
    arena[needed:] = 77
    set_num_threads(8)
    for one, other in zip(frame.run(arrays, arena), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert layout.scratch and (arena[needed:] == 77).all()


def test_the_pool_of_a_quick_frame_is_there_if_another_number_of_threads_is_set_meanwhile(three_threads: None) -> None:
    made = program(lines("def f(x: f32[300, 200], w: f32[200, 300]):", "v0: f32[300, 300] = matmul(x, w)", "return v0"))
    frame = made.quick_frame(arrays_for(made.graph))
    before = weakref.ref(pool())
    set_num_threads(2)
    gc.collect()
    assert frame is not None and before() is frame.keeps is not None


def test_errors_on_several_threads_stop_all_of_them(three_threads: None) -> None:
    made = program(LARGE.replace("program_test_double", "program_test_fails"))
    arrays = arrays_for(made.graph)
    for _ in range(3):
        with pytest.raises(OutOfRange, match="nothing there"):
            made.run(arrays)


def test_memory_is_used_again() -> None:
    value, rows = "x", ["def f(x: f32[1000, 10]):"]
    for k in range(8):
        rows.append(f"v{2 * k}: f32[10, 1000] = permute({value}, axes=(1, 0))")
        rows.append(f"v{2 * k + 1}: f32[1000, 10] = reshape(v{2 * k}, shape=(1000, 10))")
        value = f"v{2 * k + 1}"
    made = program(lines(*rows, f"return {value}"))
    assert made.peak_bytes <= 2 * 40_000


def test_a_program_says_what_it_is() -> None:
    made = program(CHAIN)
    assert made.kernels and all(unit.name and unit.loops for unit in made.kernels)
    assert "define" in made.llvm and ".text" in made.assembly


def test_empty_arrays_and_programs_without_steps() -> None:
    made = compile(trace(lambda x, y: (x + y, x), *[TensorType(float32, (0, 3))] * 2, name="empty"), backend="cpu")
    x = np.zeros((0, 3), np.float32)
    assert [r.shape for r in made.run([x, x])] == [(0, 3), (0, 3)]


def test_an_output_in_the_place_of_an_input_is_stored_after_the_other_has_read_it() -> None:
    ran = program(lines(
        "def f(x: f64[2]):",
        "a: f64[2] = cumsum(x, axis=0, reverse=False)",     # its memory is free after the kernel that reads it
        "b: bool[2] = equal(x, 0.0)",
        "c: i64[2] = cast(b, dtype=i64)",
        "w: f64[2] = where(b, f64(1.0), x)",
        "d: f64[2] = divide(a, w)",
        "e: i64[2] = cumsum(c, axis=0, reverse=False)",
        "return e, d"))
    counts, quotients = ran.run([np.array([1.0, 2.0])])
    assert counts.tolist() == [0, 0] and quotients.tolist() == [1.0, 1.5]


def test_an_output_takes_the_place_of_one_input_only() -> None:
    """Where two inputs are read for the last time, their memory stays apart."""
    graph = parse_graph("\n".join([
        "def f(a: f64[3, 2], b: f64[2]):", "    v0: f64[2] = multiply(b, b)",
        "    v1: f64[1, 2] = slice(a, start=(0, 0), stop=(1, 2), step=(1, 1))", "    v2: f64[2] = reshape(v1, shape=(2,))",
        "    v3: f64[2] = add(v0, v2)", "    v4: f64[2] = sin(v3)", "    return v4"]))
    a, b = np.arange(6.0).reshape(3, 2), np.array([2.0, 3.0])
    np.testing.assert_allclose(CPU.compile(graph).run([a, b])[0], np.sin(b * b + a[0]))
