"""onnx's own tests of operators: all of them operator by operator, and one of each operator compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tenon as tn
from onnx_models.suite_cases import arrays, check, node_cases
from tenon.onnx.known_values import REGULAR

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("letter", LETTERS)
def test_every_case_is_right_or_says_that_it_is_not_supported(letter: str) -> None:
    wrong, unsupported = [], []
    for name, case in node_cases().items():
        if name[5] != letter:
            continue
        try:
            check(case, tn.onnx.Backend.run_model)
        except tn.onnx.UnsupportedError:
            unsupported.append(name)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)
    assert len(unsupported) <= 2, unsupported


def compiled_cases() -> list[str]:
    """The first case of each operator whose inputs are tensors of Tenon's types."""
    found = {}
    for name, case in node_cases().items():
        inputs = arrays(case.data_sets[0][0])
        plain = all(isinstance(x, (np.ndarray, np.generic)) and x.dtype in REGULAR for x in inputs)
        if plain and len(case.model.graph.node) == 1:
            found.setdefault(case.model.graph.node[0].op_type, name)
    return sorted(found.values())[::4]


@pytest.mark.parametrize("name", compiled_cases())
def test_a_compiled_model_gives_the_same(name: str) -> None:
    check(node_cases()[name], lambda model, inputs: tn.onnx.Backend.run_model(model, inputs, compile=True))
