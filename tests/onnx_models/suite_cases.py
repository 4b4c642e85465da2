"""The cases of onnx's own backend tests that are made in memory, and the comparison that they come with."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

# Nobody can pass these: random numbers of the standard's own generator, a scalar in a list that the runner cannot
# compare, and last bits beside which it allows none.
NOT_COMPARABLE = ("test_bernoulli", "test_loop16_seq_none", "test_dft_inverse", "test_attention_4d_causal_fp16")


@functools.cache
def node_cases() -> dict[str, Any]:
    """Name -> case."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = {case.name: case for case in load_model_tests(kind="node")}
    return {name: c for name, c in cases.items() if not name.startswith(NOT_COMPARABLE) and c.model is not None}


def arrays(values: Any) -> list[Any]:
    return [numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in values]


def check(case: Any, run: Any) -> None:
    """Raise AssertionError where `run(model, inputs)` does not give what the case says."""
    for inputs, expected in case.data_sets:
        found = run(case.model, arrays(inputs))
        Runner.assert_similar_outputs(arrays(expected), list(found), rtol=case.rtol, atol=case.atol)
