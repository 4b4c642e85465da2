"""In all tests every graph is verified after every pass, and the positions of every kernel are proved.

The same random programs are tried in every run.

`TENON_EXPLORE=1 pytest ...` tries new ones instead: what it finds is mended, and kept as a test of its own.  What a test
sees does not depend on which ran before it: the generators of NumPy that a module of tests has begin anew with each
test, as does Tenon's own, which begins anywhere in a new process; what eager calls remember of those before is forgotten;
no thread is left compiling when a test begins, and eager calls do not become machine code once there were many: they are
in the folders of `BY_MACHINE_CODE`, and where a test asks for it.  Programs run on as many threads as ever after a test
that sets another number.
"""

import os
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tenon import pipeline
from tenon.backends.cpu import lower_kernel
from tenon.config import config
from tenon.cpython import object_layout
from tenon.eager import backward_arrays, native_fast_path, recipes
from tenon.eager.call_cache import ready_calls
from tenon.eager.call_table import cached_calls
from tenon.eager.ufunc_fast_path import PRODUCT, SHORTS
from tenon.graph.op import Op
from tenon.loops import loop_pipeline
from tenon.random import manual_seed
from tenon.runtime.thread_pool import get_num_threads, set_num_threads

pipeline.always_check = True
lower_kernel.always_verify = True
loop_pipeline.always_check = True
native_fast_path.give_python(SHORTS, PRODUCT)         # which do not count
CHECKED = {"loops", "nn", "ops", "passes", "autodiff", "test_compiled.py", "test_ops.py", "test_control.py", "test_vmap.py",
           "test_vmap_control.py", "test_transforms.py", "test_tiny.py"}
SAMPLE = int(os.environ.get("TENON_CHECK_SAMPLE", "300"))
BY_MACHINE_CODE = {"nn", "optim", "ops", "robustness"}

TIMELESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}      # a busy machine fails no test
settings.register_profile("same", derandomize=True, database=None, **TIMELESS)
settings.register_profile("explore", derandomize=False, **TIMELESS)
settings.load_profile("explore" if os.environ.get("TENON_EXPLORE") else "same")

HERE = str(Path(__file__).parent)
begins = []             # (the bits of a generator, their state when all tests were collected)


def pytest_collection_finish():
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(HERE):
            begins.extend((value.bit_generator, value.bit_generator.state) for value in vars(module).values()
                          if isinstance(value, np.random.Generator))


def pytest_runtest_setup():
    for thread in threading.enumerate():
        if thread.name.startswith("tenon-compile"):
            thread.join()
    for bits, state in begins:
        bits.state = state
    manual_seed(0)
    cached_calls.clear()


@pytest.fixture(autouse=True)
def as_many_threads_afterwards():
    before = get_num_threads()
    yield
    set_num_threads(before)


@pytest.fixture(autouse=True)
def checking_mode(request):
    """Every so many tests, always the same ones, check what is compiled."""
    places = {request.path.name, request.path.parent.name}
    if CHECKED.isdisjoint(places) or zlib.crc32(request.node.nodeid.encode()) % SAMPLE:
        yield
        return
    before = config().check
    object.__setattr__(config(), "check", before | {"bounds", "passes"})
    try:
        yield
    finally:
        object.__setattr__(config(), "check", before)


@pytest.fixture
def seed():
    """Of random texts, files and models; it is printed where a test fails."""
    found = int.from_bytes(os.urandom(4), "little") if os.environ.get("TENON_EXPLORE") else 0
    print("seed", found)
    return found


@pytest.fixture
def two_threads():
    """Programs run on two threads."""
    set_num_threads(2)


@pytest.fixture
def three_threads():
    """Programs run on three threads."""
    set_num_threads(3)


@pytest.fixture
def machine_code():
    """Machine code for the operators, from now on; functions in Python afterwards."""
    if not object_layout.READABLE:
        pytest.skip("this Python's objects are not read")
    in_python = Op.__call__
    native_fast_path.give_native(SHORTS, PRODUCT)
    yield
    native_fast_path.give_python(SHORTS, PRODUCT)
    Op.__call__ = in_python
    vars(backward_arrays.ways).update(vars(backward_arrays.BackwardEngine()))
    recipes.natives.clear()
    recipes.fusers.clear()
    ready_calls.known.clear()


@pytest.fixture(autouse=True)
def eager_calls(request):
    """Functions in Python, or machine code in some folders."""
    if request.path.parent.name in BY_MACHINE_CODE and object_layout.READABLE:
        request.getfixturevalue("machine_code")
