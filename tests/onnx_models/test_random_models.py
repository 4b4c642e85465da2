"""Random models: Tenon is never outvoted by ONNX Runtime and PyTorch, operator by operator and compiled."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from onnx_models.random_models import random_model, verdict


@pytest.mark.parametrize(("count", "compiled"), [(120, False), (4, True)])
def test_random_models_are_as_the_others_say(count: int, compiled: bool, seed: int) -> None:
    said = [(f"{seed}/{k}", *verdict(random_model(f"{seed}/{k}"), compiled)) for k in range(count)]
    wrong = [found for found in said if found[1] == "WRONG"]
    assert not wrong, wrong
    assert sum(found[1] == "agrees" for found in said) > count * 0.8
