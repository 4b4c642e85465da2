"""Programs of changing sizes of a few seeds are right; one that is wrong is told."""

import numpy as np
import pytest

import tenon as tn
from fuzz.changing_sizes import PHRASE, agree, judge, outcome


@pytest.mark.parametrize("seed", range(6))
def test_a_program_of_changing_sizes_is_the_same_jitted(seed: int) -> None:
    assert (found := judge(seed)) is None, found


def test_what_jitting_changes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tn, "jit", lambda f: lambda x, n: x * 2)
    assert "jitted" in str(judge(0))


def test_every_phrase_runs_on_some_tensor() -> None:
    for phrase in PHRASE:
        assert not isinstance(outcome(eval(f"lambda x, n: {phrase}", {"tn": tn}), np.ones((3, 4), np.float32), 2), str), phrase


def test_errors_agree_by_class_and_numbers_but_for_roundings() -> None:
    assert agree("ShapeError: 1", "ShapeError: 2", 0) and not agree("ShapeError: 1", [np.ones(1)], 0)
    assert agree([np.ones(2)], [np.ones(2) + 1e-10], 1e-9) and not agree([np.ones(2)], [np.ones(2, np.float32)], 1e-9)
