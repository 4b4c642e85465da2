"""Support vector machines and scores by label, as libraries of classical machine learning export them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest

import tenon as tn
from tenon.errors import TenonError
from tenon.onnx import load

runtime = pytest.importorskip("onnxruntime")

X = np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32)
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def model(nodes: list[Any], outputs: dict[str, Any], domains: tuple[tuple[str, int], ...] = ()) -> bytes:
    """Nodes that make these outputs of x [N, 4]; values of outputs are element types."""
    make, kind = onnx.helper, onnx.TensorProto
    found = [make.make_tensor_value_info(name, type, None) if isinstance(type, int) else onnx.ValueInfoProto(
        name=name, type=type) for name, type in outputs.items()]
    graph = make.make_graph(nodes, "machine", [make.make_tensor_value_info("x", kind.FLOAT, ["N", 4])], found)
    imports = [make.make_opsetid(*x) for x in (domains or (("", 17), ("ai.onnx.ml", 1)))]
    return make.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def machine(name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(name, inputs, outputs, domain="ai.onnx.ml", **attributes)


def of_runtime(data: bytes) -> list[Any]:
    return runtime.InferenceSession(data).run(None, {"x": X})


def classifier(classes: int, kernel: str, probability: bool, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    supported, pairs = draw.integers(1, 5, classes), len(list(combinations(range(classes), 2)))
    numbers = {"coefficients": (classes - 1) * supported.sum(), "support_vectors": 4 * supported.sum(), "rho": pairs}
    numbers |= {"prob_a": pairs, "prob_b": pairs} if probability else {}
    drawn = {name: draw.standard_normal(count).astype(np.float32).tolist() for name, count in numbers.items()}
    return machine("SVMClassifier", ["x"], ["label", "scores"], kernel_type=kernel, kernel_params=[0.3, 0.4, 2.0],
                   vectors_per_class=supported.tolist(), classlabels_ints=list(range(classes)), post_transform="NONE",
                   **drawn)


@pytest.mark.parametrize("probability", [False, True], ids=["decisions", "probabilities"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_classifiers(classes: int, kernel: str, probability: bool) -> None:
    kinds = {"label": onnx.TensorProto.INT64, "scores": onnx.TensorProto.FLOAT}
    data = model([classifier(classes, kernel, probability)], kinds)
    label, scores = of_runtime(data)
    found, of_tenon = load(data)(tn.tensor(X))
    assert found.tolist() == label.tolist()
    np.testing.assert_allclose(of_tenon.numpy(), scores, atol=1e-4 * np.abs(scores).max())


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", [*KERNELS, "without vectors"])
def test_regressors(kernel: str, one_class: int) -> None:
    draw = np.random.default_rng(2)
    vectors = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]} if kernel == "without vectors" else {
        "n_supports": 6, "kernel_type": kernel, "kernel_params": [0.3, 0.4, 3.0],
        "support_vectors": draw.standard_normal(24).astype(np.float32).tolist()}
    node = machine("SVMRegressor", ["x"], ["y"], one_class=one_class, rho=[0.25],
                   coefficients=draw.standard_normal(vectors.get("n_supports", 4)).astype(np.float32).tolist(), **vectors)
    data = model([node], {"y": onnx.TensorProto.FLOAT})
    np.testing.assert_allclose(load(data)(tn.tensor(X)).numpy(), of_runtime(data)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 5, 9]}, {"classlabels_strings": ["a", "b", "c"]}],
                         ids=["numbers", "words"])
def test_scores_by_label(labels: dict[str, Any]) -> None:
    words = "classlabels_strings" in labels
    key = onnx.TensorProto.STRING if words else onnx.TensorProto.INT64
    rows = onnx.helper.make_sequence_type_proto(onnx.helper.make_map_type_proto(
        key, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)))
    kinds = {"label": onnx.TensorProto.INT64, "rows": rows}
    data = model([classifier(3, "RBF", True), machine("ZipMap", ["scores"], ["rows"], **labels)], kinds)
    found, expected = load(data)(tn.tensor(X))[1], of_runtime(data)[1]
    assert [list(row) for row in found] == [list(row) for row in expected]
    np.testing.assert_allclose([list(x.values()) for x in found], [list(x.values()) for x in expected], atol=1e-5)


def test_a_domain_may_be_imported_twice_in_one_version() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    kinds = {"y": onnx.TensorProto.FLOAT}
    assert load(model([node], kinds, (("", 17), ("", 17))))(tn.tensor(X)).shape == (40, 4)
    with pytest.raises(TenonError, match="in two versions"):
        load(model([node], kinds, (("", 17), ("", 18))))
