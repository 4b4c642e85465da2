"""bfloat16 that is moved, or chosen, keeps its bits: nothing is rounded where nothing was computed."""

import numpy as np
import pytest

import tenon as tn
from backends.kernel_text import ir_of
from tenon.graph.build import trace
from tenon.llvm.host_target import host
from tenon.loops.lower import lower
from tenon.passes.expand import expand
from tenon.types import TensorType, bfloat16, bool_

X, CHOICE = TensorType(bfloat16, (67, 131)), TensorType(bool_, (67, 131))
MOVED = {
    "permute": (lambda x, c: tn.permute_dims(x, (1, 0)), False),
    "where": (lambda x, c: tn.where(c, x, tn.flip(x, axis=0)), False),
    "where with a number": (lambda x, c: tn.where(c, x, 0.5), False),
    "where with a number that is rounded first": (lambda x, c: tn.where(c, x, 0.1), False),
    "add": (lambda x, c: x + x, True),
}


@pytest.mark.parametrize("name", MOVED)
def test_only_what_is_computed_is_rounded(name: str) -> None:
    function, rounds = MOVED[name]
    text = ir_of(lower(expand(trace(function, X, CHOICE)), "kernel"), host())
    assert ("32767" in text) == rounds
    random = np.random.default_rng(0)
    x = tn.asarray(random.standard_normal((67, 131)).astype(np.float32)).astype(tn.bfloat16)
    choice = tn.asarray(random.random((67, 131)) < 0.5)
    found, expected = tn.jit(function)(x, choice).numpy(), function(x, choice).numpy()
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def test_infinities_zeros_and_nans_of_bfloat16_stay_what_they_are() -> None:
    x = tn.asarray(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -3.5] * 40, np.float32)).astype(tn.bfloat16)
    x = tn.reshape(x, (28, 10))
    found = tn.jit(lambda x: tn.permute_dims(x, (1, 0)))(x)
    assert found.numpy().tobytes() == np.ascontiguousarray(x.numpy().T).tobytes()
