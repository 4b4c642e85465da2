"""Functions to ONNX and back give what the functions give; what cannot be exported is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tenon as tn
from onnx_models.export_cases import CASES, assert_same, expected, exported
from tenon import nn
from tenon.errors import ArgumentError


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_went_to_onnx_and_back_gives_the_same(name: str) -> None:
    function, model = exported(name)
    onnx.checker.check_model(model, full_check=True)
    back = tn.onnx.load(model, compile=False)
    for arrays in CASES[name][2]:
        found = back.run(back.given(arrays, {}))
        assert_same([x.numpy() for x in found], expected(function, arrays))


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 22, onnx.defs.onnx_opset_version()])
def test_an_older_opset_has_more_nodes_and_the_same_numbers(opset: int) -> None:
    for name in ("mlp", "reductions"):
        function, model = exported(name, opset=opset)
        assert model.opset_import[0].version == opset
        back = tn.onnx.load(model, compile=False)
        arrays = CASES[name][2][0]
        assert_same([x.numpy() for x in back.run(back.given(arrays, {}))], expected(function, arrays))


def many(x: tn.Tensor) -> list[tn.Tensor]:
    return [tn.cos(x), tn.round(x), tn.softplus(x), tn.mish(x), tn.hardswish(x), x % 3, x == x.max(), x.sum(0),
            x.prod(0), x.min(0), tn.cumsum(x, 0), tn.sort(x, axis=0)[0], tn.argmax(x, axis=0), tn.cummax(x, 0), x ** 2,
            tn.where(x > 1, x, x * 2)]


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "uint8", "int16", "int64"])
def test_operators_take_the_element_types_that_onnx_has_for_them(dtype: str, opset: int) -> None:
    x = tn.tensor([[0, 1, 3], [2, 1, 0]]).astype(dtype)
    model = tn.onnx.export(many, (x,), opset=opset)
    onnx.checker.check_model(model, full_check=True)
    back = tn.onnx.load(model, compile=False)
    for found, wanted in zip(back.run(back.given((x,), {})), many(x), strict=True):
        assert found.dtype == wanted.dtype and tn.allclose(found.double(), wanted.double(), 2e-2, 1e-2)


def test_layers_stay_whole_and_weights_keep_their_names(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))
    tn.onnx.export(net, ["f32[B, 4]"], tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    assert [n.op_type for n in model.graph.node] == ["Transpose", "MatMul", "Add", "Gelu", "LayerNormalization"]
    assert {"0.weight", "0.bias", "2.weight", "2.bias"} <= {t.name for t in model.graph.initializer}
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "B"
    assert list(tmp_path.iterdir()) == [tmp_path / "net.onnx"]


def test_sizes_may_be_named_by_dynamic() -> None:
    model = tn.onnx.export(lambda x: x.reshape(-1), (tn.ones(2, 3),), dynamic={"x": {0: "N"}})
    assert tn.onnx.load(model)(np.ones((7, 3), np.float32)).shape == (21,)


def test_what_has_no_operator_is_named() -> None:
    with pytest.raises(tn.onnx.UnsupportedError, match="digamma is not supported: ONNX has no operator for it"):
        tn.onnx.export(tn.digamma, [tn.ones(2)])


def test_what_changes_tensors_is_refused() -> None:
    with pytest.raises(ArgumentError, match="changes tensors"):
        tn.onnx.export(nn.BatchNorm1d(3), [tn.ones(4, 3)])
    with pytest.raises(ArgumentError, match="opset 3 is not one of 13 to"):
        tn.onnx.export(tn.exp, [tn.ones(2)], opset=3)


def test_draws_are_onnx_s_own_where_they_are_asked_for() -> None:
    asked = {
        "bernoulli": (lambda x: tn.bernoulli(x), 0.3), "dropout": (lambda x: nn.functional.dropout(x, 0.25), 0.3),
        "normal": (lambda x: x + tn.randn_like(x), 0.3), "uniform": (lambda x: x + tn.rand(x.shape[0], dtype=tn.float64), 0.8),
        "integers": (lambda x: tn.randint(-3, 4, x.shape), 0.0),
        "classes": (lambda x: tn.distributions.Categorical(logits=x[:4] * 0).sample((4000,)), 1.5),
        "two": (lambda x: tn.rand(4000) - tn.rand(4000), 0.0)}
    for name, (function, mean) in asked.items():
        with pytest.raises(ArgumentError, match=r"(?s)draws random numbers.*random=True"):
            tn.onnx.export(function, ["f32[N]"])
        model = tn.onnx.export(function, ["f32[N]"], random=True)
        onnx.checker.check_model(model, full_check=True)
        assert all(x.data_type != onnx.TensorProto.UINT64 for x in model.graph.initializer), name
        found = tn.onnx.load(model, compile=False)(np.full(4000, 0.3, np.float32))
        assert abs(float(found.double().mean()) - mean) < 0.1, name
    with pytest.raises(tn.onnx.UnsupportedError, match="dealt is not supported"):
        tn.onnx.export(lambda x: x[tn.randperm(3)], [tn.ones(3)], random=True)
    with pytest.raises(ArgumentError, match="changes tensors"):
        tn.onnx.export(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)), [tn.ones(4, 3)], random=True)


def test_a_model_fails_where_the_function_raises() -> None:
    def positive(x: tn.Tensor) -> tn.Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2
    back = tn.onnx.load(tn.onnx.export(positive, [tn.ones(3)]), compile=False)
    assert back(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    with pytest.raises(IndexError):
        back(-np.ones(3, np.float32))


def test_lists_that_the_data_decide_are_refused() -> None:
    def doubled(x: tn.Tensor) -> list[tn.Tensor]:
        found = []
        while x.sum() < 100:
            x = x * 2
            found.append(x)
        return found
    with pytest.raises(ArgumentError, match=r"(?s)a list whose length the data decide.*tn.stack"):
        tn.onnx.export(doubled, [tn.ones(3)])
    with pytest.raises(tn.onnx.UnsupportedError, match=r"inv of f32\[9, 9\] is not supported: ONNX has determinants only"):
        tn.onnx.export(tn.linalg.inv, [tn.eye(9)])
    with pytest.raises(tn.onnx.UnsupportedError, match="cholesky is not supported"):
        tn.onnx.export(tn.linalg.cholesky, [tn.eye(2)])


def test_arguments_of_pytorchs_export(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    for axes in ({"image": {0: "batch"}, "scores": {0: "batch"}}, {"image": [0]}):
        tn.onnx.export(net, (tn.ones(2, 4),), f=tmp_path / "net.onnx", export_params=True, opset_version=17, do_constant_folding=True,
                       input_names=["image"], output_names=["scores"], dynamic_axes=axes, verbose=False)
        model = onnx.load(tmp_path / "net.onnx")
        assert (model.opset_import[0].version, model.graph.input[0].name, model.graph.output[0].name) == (17, "image", "scores")
        x = tn.rand(5, 4)
        assert bool(tn.allclose(tn.onnx.load(model)(x), net(x), atol=1e-6))
    with pytest.raises(ArgumentError, match="no argument 'output_name'"):
        tn.onnx.export(net, (tn.ones(2, 4),), output_name="y")
