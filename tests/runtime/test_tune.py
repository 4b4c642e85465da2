"""Schedules that are measured: every candidate computes the same, the fastest is taken once, and remembered."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu.lower_kernel import schedules
from tenon.backends.cpu.lowered_kernel import make_unit
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.llvm import machine_code
from tenon.llvm.code_cache import CodeCache
from tenon.llvm.host_target import host
from tenon.nn.functional import conv2d
from tenon.observe import subscribe
from tenon.program.kernel import CompiledKernel
from tenon.runtime import autotune

PRODUCTS = {
    "direct": "def f(x: f32[37, 40], y: f32[40, 53]):\n    a: f32[37, 53] = matmul(x, y)\n    return a",
    "turned": "def f(x: f64[19, 33], y: f64[33, 31]):\n    z: f64[33, 19] = permute(x, axes=(1, 0))\n"
              "    t: f64[19, 33] = permute(z, axes=(1, 0))\n    a: f64[19, 31] = matmul(t, y)\n"
              "    b: f64[19, 31] = tanh(a)\n    return b",
    "large": "def f(x: f32[50, 700], y: f32[700, 600]):\n    a: f32[50, 600] = matmul(x, y)\n    return a",
    "windows": "def f(x: f32[2, 16, 9, 11], y: f32[16, 1, 3, 3]):\n"
               "    a: f32[2, 16, 9, 11] = conv(x, y, stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=16)\n"
               "    return a",
}


def arrays_for(unit: CompiledKernel) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(p.shape).astype(p.dtype.numpy) for p in unit.body.params]


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_schedule_computes_the_same(name):
    unit = make_unit(parse_graph(PRODUCTS[name]), host())
    found, arrays = schedules(unit.kernel, unit.target), arrays_for(unit)
    assert len(found) > 1 and len(set(found)) == len(found)
    want = interpret(unit.body, arrays)[0]
    for schedule in found:
        other = make_unit(unit.body, host(), schedule=schedule)
        assert f"schedule={schedule!r}" in other.loops
        got = autotune._alone(other).run(arrays)[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=schedule)
    first = autotune._alone(make_unit(unit.body, host(), schedule=found[0])).run(arrays)[0]
    np.testing.assert_array_equal(first, autotune._alone(unit).run(arrays)[0])      # the model's choice has the same bits


def test_there_is_no_choice_for_symbolic_sizes_and_without_a_product():
    for text in ("def f(x: f32[N, 40], y: f32[40, 53]):\n    a: f32[N, 53] = matmul(x, y)\n    return a",
                 "def f(x: f32[30]):\n    a: f32[30] = exp(x)\n    return a"):
        unit = make_unit(parse_graph(text), host())
        assert schedules(unit.kernel, unit.target) == []
        assert autotune.tuned(unit) is unit


@pytest.fixture
def disk(tmp_path, monkeypatch):
    cache = CodeCache(tmp_path)
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    monkeypatch.setattr(autotune, "_chosen", {})
    return cache


@pytest.fixture
def measurements(monkeypatch):
    """What was measured; the last candidate is said to be the fastest."""
    found = []

    def race(programs, arrays):
        found.append(list(programs))
        for program in programs.values():
            program.run(arrays)
        return {name: 1.0 / (k + 1) for k, name in enumerate(programs)}
    monkeypatch.setattr(autotune, "race", race)
    return found


A, B = (np.random.default_rng(2).standard_normal(shape, np.float32) for shape in ((33, 65), (65, 47)))


def test_the_fastest_is_taken_and_measured_once(disk, measurements, monkeypatch):
    events = []
    stop = subscribe(lambda event: events.append(event) if event.name in ("autotuned", "program") else None)
    try:
        for process in range(2):
            out = tn.jit(lambda x, y: tn.relu(x @ y), autotune=True)(A, B)
            np.testing.assert_allclose(out.numpy(), np.maximum(A @ B, 0), rtol=1e-4, atol=1e-4)
            assert len(measurements) == 1           # the second process reads what the first one found
            program = [e for e in events if e.name == "program"][-1].fields["program"]
            assert [kernel.schedule for kernel in program.kernels] == [measurements[0][-1]], process
            monkeypatch.setattr(autotune, "_chosen", {})
            del program
            gc.collect()
        assert [e.fields["chosen"] for e in events if e.name == "autotuned"] == [measurements[0][-1]]
    finally:
        stop()


def test_a_little_faster_is_no_reason_to_change(disk, monkeypatch):
    monkeypatch.setattr(autotune, "race", lambda programs, arrays: {name: 1.0 if not name else 0.97 for name in programs})
    unit = make_unit(parse_graph(PRODUCTS["direct"]), host())
    assert autotune.tuned(unit) is unit


def test_what_is_measured_is_measured_by_turns_on_numbers_of_the_right_sizes():
    unit = make_unit(parse_graph(PRODUCTS["direct"]), host())
    times = autotune.race({name: autotune._alone(make_unit(unit.body, host(), schedule=name)) for name in schedules(unit.kernel, unit.target)[:2]},
                      [autotune._random(p.type) for p in unit.body.params])
    assert len(times) == 2 and min(times.values()) > 0


def test_without_autotune_nothing_is_measured(disk, measurements):
    tn.jit(lambda x, y: x @ y + 3)(A, B)
    assert measurements == []


def test_training_and_inference_are_tuned(disk, measurements):
    x, w = tn.rand(2, 4, 8, 8), tn.rand(4, 4, 3, 3)
    w.requires_grad = True

    def step(x):
        loss = conv2d(x, w, padding=1).square().mean()
        loss.backward()
        w.assign(w.detach() - 0.1 * w.grad)
        w.grad = None
        return loss.detach()
    before, start = tn.jit(step), np.array(w.detach().numpy())
    want = before(x).numpy(), np.array(w.detach().numpy())
    w.assign(tn.tensor(start))
    w.requires_grad = True
    got = tn.jit(step, autotune=True)(x).numpy(), np.array(w.detach().numpy())
    assert len(measurements) >= 2
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
