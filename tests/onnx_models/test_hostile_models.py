"""A hostile model is an error that says what is wrong, or a result: quickly, in little memory, and never a crash."""

from __future__ import annotations

import time
import tracemalloc

import pytest

import tenon as tn
from onnx_models.hostile_models import HOSTILE
from tenon.errors import TenonError

MAX_BYTES = 200 << 20
SECONDS = 5.0       # of computing; the checks that tests switch on take some of it


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_model_is_refused_or_runs(name: str) -> None:
    data, arrays = HOSTILE[name]()
    tracemalloc.start()
    begin = time.process_time()
    try:
        limits = {"time_limit": 1.0} if name.startswith("loop") else {}
        tn.onnx.load(data, **limits)(*arrays)
    except TenonError as error:
        assert error.what
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_BYTES
    assert time.process_time() - begin < SECONDS


def test_more_than_a_memory_limit_is_refused_before_it_is_taken() -> None:
    data, arrays = HOSTILE["size: doubling"]()
    for options in ({}, {"compile": False}, {"time_limit": 5.0}):
        with pytest.raises(TenonError, match="has more than 1,000 bytes"):
            tn.onnx.load(data, memory_limit=1000, **options)(*arrays)
