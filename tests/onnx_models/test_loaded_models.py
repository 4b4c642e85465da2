"""Loading, calling and refusing models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tenon as tn
from tenon.errors import ArgumentError


def parsed(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> ' + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in weights.items())
    return model


LINEAR = "g (float[N, 3] x) => (float[N, 2] y) { h = MatMul(x, w) y = Relu(h) }"
WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2) - 2


def test_calls_with_other_sizes_give_what_numpy_gives() -> None:
    model = tn.onnx.load(parsed(LINEAR, w=WEIGHT))
    for rows in (2, 5, 1, 0, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 3), np.float32)
        np.testing.assert_allclose(model(x).numpy(), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-6)


def test_a_model_is_differentiated_and_part_of_other_functions() -> None:
    model = tn.onnx.load(parsed(LINEAR, w=WEIGHT))
    x = tn.tensor([[1.0, 2.0, 3.0]])
    gradient = tn.grad(lambda x: model(x).sum())(x)
    np.testing.assert_allclose(gradient.numpy(), [(WEIGHT * (x.numpy() @ WEIGHT > 0)).sum(1)])
    np.testing.assert_allclose(tn.jit(lambda x: model(x) * 2)(x).numpy(), 2 * model(x).numpy())


def test_shapes_that_are_computed_from_shapes_are_known_in_the_graph() -> None:
    text = """g (float[A, B] x) => (float[C] y) {
        s = Shape(x) n = ReduceProd<keepdims = 1>(s) y = Reshape(x, n) }"""
    model = tn.onnx.load(parsed(text))
    x = tn.ones(2, 3)
    assert model(x).shape == (6,)
    assert [node.op.name for node in model.graph(x).nodes] == ["reshape"]


def test_a_size_that_the_data_decide_runs() -> None:
    text = "g (float[N] x, int64[1] s) => (float[M] y) { y = Expand(x, s) }"
    model = tn.onnx.load(parsed(text))
    for size in (1, 3, 4):
        assert model(tn.ones(1), tn.tensor([size])).shape == (size,)


def test_branches_on_the_data_choose_in_every_call() -> None:
    text = """g (float[2] x) => (float[2] y) {
        s = ReduceSum<keepdims = 0>(x) zero = Constant<value = float {0}>() c = Greater(s, zero)
        y = If(c) <then_branch = a () => (float[2] p) { p = Neg(x) }, else_branch = b () => (float[2] q) { q = Abs(x) }> }
    """
    model = tn.onnx.load(parsed(text))
    assert model(tn.tensor([1.0, 2.0])).tolist() == [-1.0, -2.0]
    assert model(tn.tensor([1.0, -2.0])).tolist() == [1.0, 2.0]
    assert "cond" in [node.op.name for node in model.graph(tn.ones(2)).nodes]


def test_a_loop_on_the_data_runs_as_often_as_they_say() -> None:
    text = """g (int64 n, float[2] x) => (float[2] y) {
        y = Loop(n, , x) <body = b (int64 k, bool c, float[2] v) => (bool d, float[2] w) {
            d = Identity(c) w = Add(v, v) }> }"""
    model = tn.onnx.load(parsed(text))
    for turns in (0, 1, 5):
        assert model(tn.tensor(turns), tn.tensor([1.0, 3.0])).tolist() == [2.0 ** turns, 3 * 2.0 ** turns]


@pytest.mark.parametrize("text", [
    "g (float[N, 3] x) => (float[N, 2] y) { h = MatMul(x, w) y = Gelu(h) }",
    "g (float[N, 3] x) => (float[N, 2] y) { h = MatMul(x, w) c = ReduceSum<keepdims = 0>(h) z = Sub(c, c) b = Less(c, z) "
    "y = If(b) <then_branch = p () => (float[N, 2] p) { p = Neg(h) }, "
    "else_branch = q () => (float[N, 2] q) { q = Add(h, h) }> }",
])
def test_a_loaded_model_is_saved_and_exported_again(text: str, tmp_path: Path) -> None:
    model, x = tn.onnx.load(parsed(text, w=WEIGHT)), tn.tensor([[1.0, 2.0, -3.0]])
    tn.save(tmp_path / "g.safetensors", model, [x])
    tn.onnx.export(model, [x], tmp_path / "g.onnx")
    for again in (tn.load(tmp_path / "g.safetensors"), tn.onnx.load(tmp_path / "g.onnx")):
        for given in (x, -x):
            np.testing.assert_allclose(again(given).numpy(), model(given).numpy(), rtol=1e-6)


def test_sequences_as_results_are_lists_compiled_and_saved(tmp_path: Path) -> None:
    pair = tn.onnx.load(parsed("g (float[N] x, float[N] y) => (seq(float[N]) s, float[N] z) { s = SequenceConstruct(x, y) "
                               "z = Add(x, y) }"))
    x, y = tn.tensor([1.0, 2.0]), tn.tensor([3.0, 4.0])
    tn.save(tmp_path / "g.safetensors", pair, [x, y])
    for call in (pair, tn.jit(pair), tn.load(tmp_path / "g.safetensors")):
        listed, total = call(x, y)
        assert isinstance(listed, list) and [part.tolist() for part in listed] == [[1, 2], [3, 4]]
        assert total.tolist() == [4, 6]
    assert [node.op.name for node in pair.graph(x, y).nodes] == ["add"]
    parts = tn.onnx.load(parsed("g (float[N] x) => (seq(float[1]) s) { s = SplitToSequence<axis = 0>(x) }"))
    for size in (3, 1, 4):
        assert [part.tolist() for part in parts(tn.arange(size).float())] == [[float(k)] for k in range(size)]


def test_inputs_are_checked() -> None:
    model = tn.onnx.load(parsed(LINEAR, w=WEIGHT))
    with pytest.raises(ArgumentError, match="'x' is FLOAT, and is given DOUBLE"):
        model(np.zeros((2, 3)))
    with pytest.raises(ArgumentError, match="no input 'z'"):
        model(z=tn.ones(1, 3))
    with pytest.raises(ArgumentError, match="not given x"):
        model()


def test_what_is_not_supported_is_named() -> None:
    model = tn.onnx.load(helper.make_model(helper.make_graph(
        [helper.make_node("Nonsense", ["x"], ["y"], "the_node")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])), compile=False)
    with pytest.raises(tn.onnx.UnsupportedError, match=r"Nonsense \(opset \d+, node 'the_node'\) is not supported"):
        model(tn.ones(2))
    assert len(model.unsupported()) == 1


def external(folder: Path, location: str, **entries: str) -> Path:
    """A model whose weight stands in another file."""
    model = parsed(LINEAR, w=WEIGHT)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(b"\0" * 8 + WEIGHT.tobytes())
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def test_weights_are_read_from_the_models_folder(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", offset="8", length="24")
    np.testing.assert_allclose(tn.onnx.load(path)(tn.ones(1, 3)).numpy(), [[0, 3]])


def test_weights_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "inside" / "link.bin").symlink_to(tmp_path / "secret.bin")
    for location in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "a/../../secret.bin", "", "missing.bin"):
        with pytest.raises(tn.onnx.ModelError):
            tn.onnx.load(external(tmp_path / "inside", location))
    for entries in ({"offset": "-8"}, {"offset": "999"}, {"length": "99"}, {"offset": "x"}):
        with pytest.raises(tn.onnx.ModelError):
            tn.onnx.load(external(tmp_path, "weights.bin", **entries))


def test_tenon_itself_does_not_load_onnx() -> None:
    code = "import tenon as tn, sys; tn.onnx; assert 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(tn.__file__).parent.parent)


def test_without_onnx_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    code = ("import sys; sys.modules['onnx'] = None\n"
            "import tenon as tn\n"
            "try: tn.onnx.load('x.onnx')\n"
            "except ImportError as error: print(error)")
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                           cwd=Path(tn.__file__).parent.parent)
    assert "pip install 'tenon-graph[onnx]'" in found.stdout


def test_a_slice_that_goes_back_from_before_the_first_element_starts_at_it() -> None:
    text = "g (float[5] x) => (float[M] y) <int64[1] s = {-6}, int64[1] e = {-99}, int64[1] a = {0}, int64[1] t = {-2}> " \
           "{ y = Slice(x, s, e, a, t) }"
    assert tn.onnx.load(parsed(text))(np.arange(5, dtype=np.float32) + 7).numpy().tolist() == [7]
