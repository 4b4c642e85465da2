"""Kernels are remembered: a second process neither lowers nor compiles what is on the disk, and never takes the wrong."""

from __future__ import annotations

import gc
import os
import threading
from collections import OrderedDict

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu import compile_graph, lower_kernel
from tenon.backends.cpu.lowered_kernel import make_unit
from tenon.dims.symbolic_dim import symbol
from tenon.errors import OutOfRange
from tenon.graph.ir import DONATED, UPDATES
from tenon.graph.text import parse_graph
from tenon.llvm import machine_code
from tenon.llvm.code_cache import CodeCache
from tenon.llvm.host_target import host
from tenon.observe import subscribe
from tenon.pipeline import compile, optimize
from tenon.program import kernel_cache
from tenon.program.predict_aliasing import PredictedAliasing
from tenon.records import replace
from tenon.runtime.program_layout import called_first

SOFTMAX = """
def softmax(x: f32[40, 30]):
    v0: f32[40] = max(x, axis=(1,), keepdims=False)
    v1: f32[40, 1] = reshape(v0, shape=(40, 1))
    v2: f32[40, 30] = broadcast_to(v1, shape=(40, 30))
    v3: f32[40, 30] = subtract(x, v2)
    v4: f32[40, 30] = exp(v3)
    return v4
"""
X = np.random.default_rng(0).standard_normal((40, 30), np.float32)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    cache = CodeCache(tmp_path)
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    monkeypatch.setattr(kernel_cache, "_known", OrderedDict())
    return cache


@pytest.fixture
def done():
    names = []
    stop = subscribe(lambda event: names.append(event.name) if event.name in ("lower", "llvm.compile") else None)
    yield names
    stop()


def as_in_a_new_process(monkeypatch):
    gc.collect()
    monkeypatch.setattr(kernel_cache, "_known", OrderedDict())


def test_a_second_process_neither_lowers_nor_compiles(disk, done, monkeypatch):
    want = compile(parse_graph(SOFTMAX), "cpu").run([X])[0]
    assert set(done) == {"lower", "llvm.compile"}
    as_in_a_new_process(monkeypatch)
    done.clear()
    program = compile(parse_graph(SOFTMAX), "cpu")
    np.testing.assert_array_equal(program.run([X])[0], want)
    assert done == []
    assert "exp" in program.kernels[0].loops and "define" in program.kernels[0].ir      # made again when asked for


STEP = """
def step(w: f32[300], g: f32[300]):
    v0: f32[300] = multiply(g, 0.5)
    v1: f32[300] = subtract(w, v0)
    return v1
"""


def test_a_kernel_that_only_ran_in_donated_memory_is_not_lowered_again(disk, done, monkeypatch):
    w, g = np.full(300, 3, np.float32), np.ones(300, np.float32)
    compile(replace(parse_graph(STEP), notes={DONATED: (0,)}), "cpu").run([w, g], {0})
    assert done == ["lower", "llvm.compile"]                    # and one variant is compiled, not two
    np.testing.assert_array_equal(w, 2.5)
    as_in_a_new_process(monkeypatch)
    done.clear()
    compile(replace(parse_graph(STEP), notes={DONATED: (0,)}), "cpu").run([w, g], {0})
    np.testing.assert_array_equal(w, 2.0)
    assert done == []
    again = compile(parse_graph(STEP), "cpu").run([w, g])[0]    # the entry without code is completed
    np.testing.assert_array_equal(again, 1.5)
    np.testing.assert_array_equal(w, 2.0)
    assert "llvm.compile" in done


def test_a_kernel_that_shares_memory_becomes_code_once(disk, monkeypatch):
    made = []
    write = lower_kernel.module_of
    monkeypatch.setattr(lower_kernel, "module_of", lambda *given: made.append(given[0].name) or write(*given))
    state = tn.zeros(500)

    @tn.jit
    def step(x):
        state.assign(state * 0.5 + x)
        return (state * x).sum()

    x = tn.ones(500)
    assert [float(step(x)) for _ in range(2)] == [500.0, 750.0]
    assert made and len(made) == len(set(made))


def test_a_product_that_is_told_of_again_while_it_is_made_becomes_loops_once(disk, monkeypatch):
    lowered, told_twice = [], threading.Event()
    real, compile_now = lower_kernel.kernel_of, machine_code._compile
    monkeypatch.setattr(lower_kernel, "kernel_of", lambda *args: lowered.append(args[1]) or real(*args))
    monkeypatch.setattr(machine_code, "_compile", lambda *args: told_twice.wait(60) and compile_now(*args))
    graph = parse_graph("""
def f(x: f32[61, 67], w: f32[67, 71]):
    v0: f32[61, 71] = matmul(x, w)
    return v0
""")
    compile_graph.begin(graph, host())
    compile_graph.begin(graph, host())
    told_twice.set()
    [step] = compile_graph.assemble_graph(graph, host()).steps
    assert lowered == ["matmul"] and step.unit.code.result()


UPDATE = """
def step(x: f32[61, 67], g: f32[61, 71], w: f32[67, 71]):
    v0: f32[67, 61] = permute(x, axes=(1, 0))
    v1: f32[67, 71] = matmul(v0, g)
    v2: f32[67, 71] = subtract(w, v1)
    v3: f32[67, 71] = reshape(v2, shape=(67, 71))
    return v3
"""


@pytest.mark.parametrize("donated", [(2,), ()])
def test_a_product_whose_result_takes_a_donated_argument_is_begun_in_that_form(disk, monkeypatch, donated):
    written = []
    write = lower_kernel.module_of
    monkeypatch.setattr(lower_kernel, "module_of", lambda *given: written.append(given[2]) or write(*given))
    graph = optimize(replace(parse_graph(UPDATE), notes={DONATED: donated}), backend="cpu")
    compile_graph.begin(graph, host())
    [shared] = written
    assert bool(shared) == bool(donated)
    wanted = called_first(compile_graph.assemble_graph(graph, host(), called_first))
    assert [unit.shared for unit in wanted] == written == [shared]


SUM_BETWEEN = """
def f(x: f32[61, 67], w: f32[67, 67], u: f32[67, 67]):
    v0: f32[61, 67] = matmul(x, w)
    v1: f32[61, 67] = matmul(x, u)
    v2: f32[61, 67] = add(v0, v1)
    v3: f32[61, 67] = matmul(v2, w)
    return v3
"""


def test_a_product_waits_that_may_share_memory_with_what_lies_between_kernels(disk):
    graph = optimize(parse_graph(SUM_BETWEEN), backend="cpu")
    foreseen = PredictedAliasing(graph)
    [(node, unit)] = [(node, make_unit(node.attrs["body"], host())) for node in graph.nodes if "body" in node.attrs]
    assert unit.facts.in_place
    assert foreseen.variant(unit, node.inputs, node.outputs) is None


def test_a_product_waits_that_may_share_memory_where_there_is_a_loop(disk):
    taken = tn.zeros((67, 71))

    @tn.jit
    def step(x, g):
        taken.assign(taken - x.T @ g)
        return tn.while_loop(lambda n: n.sum() < 9, lambda n: n + 1, x)

    x, g = tn.ones((61, 67)), tn.ones((61, 71))
    seen = []
    stop = subscribe(lambda event: seen.append(event.fields["program"].graph) if event.name == "program" else None)
    step(x, g)
    stop()
    [(graph, node, unit)] = [(graph, node, make_unit(node.attrs["body"], host())) for graph in seen for node in graph.nodes
                             if "body" in node.attrs and "matmul" in str(node.attrs["body"])]
    assert unit.facts.in_place and graph.notes[DONATED]
    assert PredictedAliasing(graph).variant(unit, node.inputs, node.outputs) is None
    notes = {**graph.notes, UPDATES: tuple((k, 0) for k in graph.notes[DONATED])}
    without = replace(graph, nodes=(node,), results=node.outputs, notes=notes)
    assert PredictedAliasing(without).variant(unit, node.inputs, node.outputs).shared


def test_what_code_cannot_express_falls_into_parts(monkeypatch):
    write = lower_kernel.module_of

    def refuse(kernel, target, shared=()):
        if "exp" in kernel.name:
            raise NotImplementedError("no code for this")
        return write(kernel, target, shared)

    monkeypatch.setattr(machine_code, "_disk", lambda: CodeCache(None))
    monkeypatch.setattr(kernel_cache, "_known", OrderedDict())
    monkeypatch.setattr(lower_kernel, "module_of", refuse)
    x = X[:, :29].copy()        # of another size than other tests compile
    program = compile(parse_graph(SOFTMAX.replace("30", "29")), "cpu")
    assert not any("exp" in unit.name for unit in program.kernels)
    want = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(program.run([x])[0], want, rtol=1e-6)


def test_a_damaged_entry_is_made_again(disk, done, monkeypatch):
    want = compile(parse_graph(SOFTMAX), "cpu").run([X])[0]
    for entry in list(disk.directory.glob("*.object")):
        line = disk.get(entry.stem).partition(b"\n")[0]
        disk.put(entry.stem, line + b"\nno code")
    as_in_a_new_process(monkeypatch)
    done.clear()
    np.testing.assert_array_equal(compile(parse_graph(SOFTMAX), "cpu").run([X])[0], want)
    assert "llvm.compile" in done


def test_without_a_disk_a_kernel_in_memory_is_used_again(monkeypatch, done):
    monkeypatch.setattr(machine_code, "_disk", lambda: CodeCache(None))
    monkeypatch.setattr(kernel_cache, "_known", OrderedDict())
    first = compile(parse_graph(SOFTMAX), "cpu")
    want = first.run([X])[0]
    done.clear()
    second = compile(parse_graph(SOFTMAX), "cpu")
    np.testing.assert_array_equal(second.run([X])[0], want)
    assert done == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_makes_the_code_that_its_parent_was_making(monkeypatch):
    monkeypatch.setattr(machine_code, "_disk", lambda: CodeCache(None))
    monkeypatch.setattr(kernel_cache, "_known", OrderedDict())
    program = compile(parse_graph(SOFTMAX.replace("30", "28")), "cpu")
    child = os.fork()
    if not child:
        os._exit(not np.isfinite(program.run([X[:, :28].copy()])[0]).all())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_index_out_of_range_is_blamed_on_its_own_line(disk, monkeypatch):
    table = tn.asarray(np.arange(12, dtype=np.float32).reshape(4, 3))
    for _ in range(2):
        one = tn.jit(lambda rows: tn.take(table, rows, axis=0) * 2.0)
        two = tn.jit(lambda rows:
                     tn.take(table, rows, axis=0) * 2.0)
        lines = []
        for function in (one, two):
            with pytest.raises(OutOfRange, match="index 7 is out of range") as caught:
                function(np.array([0, 7, 2]))
            lines.append(caught.value.where.line)
        assert lines[1] == lines[0] + 2
        del one, two
        as_in_a_new_process(monkeypatch)


def test_a_user_s_operator_of_the_same_name_is_another_kernel(disk, monkeypatch):
    for factor in (2.0, 3.0):
        scale = tn.op("scale_by_something", type=lambda x: x, ref=lambda x, factor=factor: x * np.float32(factor),
                      compute=lambda s, i, x, factor=factor: x(i) * s.const(factor, x(i).dtype), elementwise=True,
                      replace=True)
        jitted = tn.jit(lambda x, scale=scale: tn.exp(scale(x)))
        np.testing.assert_allclose(jitted(X).numpy(), np.exp(X * np.float32(factor)), rtol=1e-6)
        del jitted
        as_in_a_new_process(monkeypatch)


def test_facts_survive_the_disk():
    size = symbol("B")
    facts = kernel_cache.KernelMetadata(2, (tn.types.TensorType(tn.float32, (3, size * 2)),), size + 64,
                                        frozenset({(0, 1), (1, 0)}), ("B",), (kernel_cache.Check(3, "take"), kernel_cache.Check(-1, "")))
    assert kernel_cache._decoded(kernel_cache._encoded(facts)) == facts
