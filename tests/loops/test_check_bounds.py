"""Positions that data decide are looked at when a kernel runs, where TENON_CHECK says so."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loops.compiled import run
from tenon.errors import BoundsError, Location
from tenon.graph.text import parse_graph
from tenon.loops.check_bounds import with_checks
from tenon.loops.expressions import Buffer, Index, Load, Local, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Contraction, Kernel, Let, Loop, Nest, Store
from tenon.loops.lower import lower
from tenon.loops.size_needs import size_needs
from tenon.loops.verify_bounds import unproved, verify_bounds
from tenon.types import TensorType, float32, int64

WHERE = Location("user.py", 14)
i, at = Index("i", 4), Local("at", int64)
places, x, out = (Buffer(name, TensorType(dtype, (n,)), role) for name, dtype, n, role in (
    ("places", int64, 4, "input"), ("x", float32, 5, "input"), ("out", float32, 4, "output")))


def kernel(*body):
    return Kernel("k", (places, x), (out,), (), (), (Nest((Loop(i, size(4), body, "parallel"),)),))


READS = kernel(Let(at, Load(places, i, None)), Store(out, i, Load(x, at, None)))
READS_WHERE = kernel(Let(at, Load(places, i, None)), Store(out, i, Load(x, at, at < 5)))
WRITES = kernel(Let(at, Load(places, i, None)), Store(out, at, Load(x, i, None)))


def both(loops, positions):
    arrays = [np.array(positions), np.arange(5, dtype=np.float32)]
    yield lambda: interpret(loops, arrays)
    yield lambda: run(loops, arrays)


@pytest.mark.parametrize(("loops", "message"), [
    (READS, "kernel k: load of x of 5 elements at {}, outside of it"),
    (READS_WHERE, "kernel k: load of x of 5 elements at {}, outside of it"),
    (WRITES, "kernel k: store to out of 4 elements at {}, outside of it")])
def test_a_position_outside_is_an_error_that_names_the_buffer_and_the_users_line(loops, message):
    assert [access.by_data for access in unproved(loops)] == [True]
    checked = with_checks(verify_bounds(loops), WHERE)
    for bad in (-1, 6, 1 << 40)[:1 if loops is READS_WHERE else 3]:
        for call in both(checked, [0, 1, bad, 2]):
            with pytest.raises(BoundsError, match=message.format(bad)) as raised:
                call()
            assert raised.value.where == WHERE


def test_products_rely_on_what_slices_need_and_look_at_nothing():
    graph = parse_graph("""def f(x: f32[B, 40], y: f32[40, 50]):
    v0: f32[30, 40] = slice(x, start=(0, 0), stop=(30, 40), step=(1, 1))
    v1: f32[30, 50] = matmul(v0, y)
    return v1""")
    loops = lower(graph, "k")
    assert [type(access.statement) for access in unproved(loops)] == [Contraction]
    assert not with_checks(verify_bounds(loops, size_needs(graph)), WHERE).checks


@pytest.mark.parametrize("loops", [READS, READS_WHERE, WRITES])
def test_positions_inside_give_what_they_gave(loops):
    good = [3, 0, 1, 2]
    plain = [call()[0] for call in both(loops, good)]
    checked = [call()[0] for call in both(with_checks(loops, WHERE), good)]
    for one, other in zip(plain, checked, strict=True):
        np.testing.assert_array_equal(one, other)


def test_where_a_load_is_masked_nothing_is_looked_at():
    for call in both(with_checks(READS_WHERE, WHERE), [0, 7, 1, 2]):
        np.testing.assert_array_equal(call()[0], [0, 0, 1, 2])


def test_what_is_proved_is_not_looked_at():
    proved = kernel(Store(out, i, Load(x, i + 1, None)))
    assert with_checks(proved, WHERE) is proved


WRONG = """
import numpy as np
import tenon as tn
from tenon.graph.op import Op
from tenon.types import TensorType

pick = Op("pick", type=lambda x, at: TensorType(x.dtype, at.shape), ref=lambda x, at: np.take(x, at, mode="clip"),
          compute=lambda s, i, x, at: x((s.cast(at(i), tn.int64),)))     # no s.index: nobody looks
Op.is_own = property(lambda op: True)           # at what Tenon's own operators read

@tn.jit
def f(x, at):
    return pick(x, at) * 2.0

print(f(tn.ones(1000), tn.tensor([0, 999])).tolist())
print(f(tn.ones(1000), tn.tensor([0, {bad}])).tolist())
"""
ORDERS = """
import numpy as np
import tenon as tn
x = tn.tensor(np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32))
f = tn.jit(lambda x: (tn.sort(x, axis=1), tn.argsort(x, axis=0), *tn.topk(x, 5, axis=1), tn.cumsum(x, axis=1),
                      tn.searchsorted(tn.sort(x[0]), x[1])))
for got, right in zip(f(x), f.__wrapped__(x)):
    np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=1e-4, atol=1e-4)
print("equal")
"""


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment})


def test_a_program_whose_kernel_reads_outside_ends_in_an_error_at_the_users_line():
    done = python(WRONG.format(bad=1000), TENON_CHECK="bounds")
    assert done.stdout == "[2.0, 2.0]\n"
    assert "BoundsError: kernel pick_multiply: load of p0 of 1000 elements at 1000, outside of it" in done.stderr
    assert "<string>:13" in done.stderr


def test_kernels_that_order_and_search_run_with_their_positions_looked_at():
    done = python(ORDERS, TENON_CHECK="bounds")
    assert done.stdout == "equal\n", done.stderr
