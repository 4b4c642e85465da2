"""Functions of a few operators that NumPy does are called as they are, unless their Python takes long."""

import numpy as np
import pytest

import tenon as tn
from tenon.capture import eager_call

SQUARE = tn.tensor(np.eye(12, dtype=np.float32) * 2 + 0.25)


def only(jitted):
    *_, captured = (x for record in jitted.records.values() for x in record.captures)
    return captured


@pytest.mark.parametrize("f", [
    tn.linalg.inv, lambda x: tn.linalg.cholesky(x).sum(), lambda x: tn.fft.rfft(x[0]), lambda x: x[x > 1], tn.unique,
    lambda x: {"values": tn.linalg.eigh(x)[0], "of": "a matrix"}])
def test_a_few_operators_of_numpy_are_called_as_they_are(f):
    jitted = tn.jit(f)
    for _ in range(4):
        found, wanted = jitted(SQUARE), f(SQUARE)
        assert repr(found) == repr(wanted)
    assert only(jitted).by_python
    assert "  runs as eager code: its program would ask NumPy step by step, which takes longer" in \
        str(tn.explain(jitted)).splitlines()


def test_other_calls_are_still_told_apart():
    scale, jitted = [1.0], tn.jit(lambda x: tn.linalg.inv(x) * scale[0])
    for _ in range(4):
        assert jitted(SQUARE).tolist() == tn.linalg.inv(SQUARE).tolist()
    scale[0] = 2.0
    assert jitted(SQUARE).tolist() == (tn.linalg.inv(SQUARE) * 2).tolist()
    assert jitted(tn.eye(3)).tolist() == (tn.eye(3) * 2).tolist()


def test_what_a_call_does_in_python_is_done_once():
    done, w = {"calls": 0}, tn.ones(12, 12, requires_grad=True)

    @tn.jit
    def solved(x):
        done["calls"] += 1
        return (tn.linalg.inv(x) * w).sum()
    for _ in range(6):
        solved(SQUARE).backward()
    assert done["calls"] == 6 and only(solved).by_python
    np.testing.assert_allclose(w.grad.numpy(), 6 * tn.linalg.inv(SQUARE).numpy(), rtol=1e-5)


def test_where_python_takes_long_the_program_runs_after_all(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(eager_call, "perf_counter", lambda: clock.__setitem__(0, clock[0] + 1e-3) or clock[0])
    jitted = tn.jit(tn.linalg.inv)
    for k in range(eager_call.MEASURED + 2):
        jitted(SQUARE)
        assert only(jitted).by_python or k in (0, eager_call.MEASURED + 1)
    for _ in range(2):
        assert jitted(SQUARE).tolist() == tn.linalg.inv(SQUARE).tolist()
    assert only(jitted).by_python == 0 and not isinstance(only(jitted).short, eager_call.EagerCall)


def test_graphs_that_are_asked_for_are_run():
    jitted = tn.jit(tn.linalg.inv, fullgraph=True)
    for _ in range(4):
        jitted(SQUARE)
    assert only(jitted).by_python == 0
    large = tn.jit(tn.linalg.inv)
    for _ in range(3):
        large(tn.eye(400))
    assert only(large).by_python == 0


def test_arrays_that_do_not_lie_in_rows_have_a_short_way(monkeypatch):
    x = tn.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3).T)
    f = tn.jit(lambda x: tn.tanh(x).sum(0))
    for _ in range(3):
        f(x)
    monkeypatch.setattr("tenon.capture.jitted.run", None)
    np.testing.assert_allclose(f(x).numpy(), np.tanh(x.numpy()).sum(0), rtol=1e-6)
