"""float16 where the processor has no instructions for it: the same numbers as where it has them."""

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon.llvm import float16_libcalls, machine_code

MANY = """
define void @many(ptr %x, ptr %y, i64 %count) {{
start:
  br label %loop
loop:
  %i = phi i64 [0, %start], [%next, %loop]
  %from = getelementptr {source}, ptr %x, i64 %i
  %given = load {source}, ptr %from
  %made = call {target} @{function}({source} %given)
  %to = getelementptr {target}, ptr %y, i64 %i
  store {target} %made, ptr %to
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def converted(function, source, target, x, dtype):
    library = machine_code.compile(float16_libcalls.MODULE + MANY.format(function=function, source=source, target=target))
    y = np.empty(x.shape, dtype)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address("many"))
    call(x.ctypes.data, y.ctypes.data, x.size)
    return y


def equal(found, expected):
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    numbers = ~np.isnan(expected)
    assert found[numbers].tobytes() == expected[numbers].tobytes()


ALL = np.arange(1 << 16).astype(np.uint16).view(np.float16)


def test_every_float16_becomes_a_float32():
    equal(converted("tenon_extendhfsf2", "half", "float", ALL, np.float32), ALL.astype(np.float32))


@pytest.mark.parametrize(("function", "source", "dtype"), [("tenon_truncsfhf2", "float", np.float32),
                                                          ("tenon_truncdfhf2", "double", np.float64)])
def test_floats_at_and_beside_every_middle_are_rounded_to_nearest_even(function, source, dtype):
    x, expected = at_and_beside_every_middle(dtype)
    equal(converted(function, source, "half", x, np.float16), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_cast_rounds_once(dtype):
    """A double was rounded to a float first."""
    x, expected = at_and_beside_every_middle(dtype)
    equal(tn.jit(lambda x: x.astype("float16"))(x).numpy(), expected)


def at_and_beside_every_middle(dtype):
    """Numbers, and what they are as float16."""
    with np.errstate(all="ignore"):
        ends = ALL.astype(dtype)
        middles = (ends + np.nextafter(ALL, np.float16(np.inf)).astype(dtype)) / 2
        largest = np.array([65519.99, 65520, 65520.01, 1e30, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
        x = np.concatenate([ends, middles, np.nextafter(middles, dtype(np.inf)), np.nextafter(middles, dtype(-np.inf)),
                            largest, -largest])
        return x, x.astype(np.float16)


PROGRAM = """
import llvmlite.binding as llvm
from llvmlite.binding.targets import FeatureMap
first = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87")
plain = FeatureMap({name: name in first for name in llvm.get_host_cpu_features()})
llvm.get_host_cpu_features, llvm.get_host_cpu_name = lambda: plain, lambda: "x86-64"
import numpy as np
import tenon as tn
x, y = (tn.asarray((np.arange(n * 5).reshape(n, 5) % 7 - 3) / 4).astype("float16") for n in (9, 8))
f = tn.jit(lambda x, y: (x @ y.T * 2 + 1, (x.astype("float64") / 3).astype("float16")))
for _ in range(3):
    product, third = f(x, y)
assert product.tolist() == (x.astype("float64") @ y.astype("float64").T * 2 + 1).tolist()
assert third.numpy().tobytes() == (x.numpy().astype("float64") / 3).astype("float16").tobytes()
"""


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the plainest x86-64")
def test_a_processor_without_conversions_computes_with_float16(tmp_path):
    settings = os.environ | {"TENON_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
