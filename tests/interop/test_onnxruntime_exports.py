"""What Tenon exports gives the same numbers in ONNX Runtime."""

import onnxruntime
import pytest

from onnx_models.export_cases import CASES, assert_same, expected, exported


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_gives_the_same(name):
    function, model = exported(name)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for arrays in CASES[name][2]:
        inputs = dict(zip([x.name for x in session.get_inputs()], arrays, strict=True))
        assert_same(session.run(None, inputs), expected(function, arrays))
