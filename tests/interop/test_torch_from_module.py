"""`tn.torch.from_module` and `to_module`: models that go from PyTorch to Tenon, and functions that go the other way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tenon as tn
from interop.test_torch_compile import Function, Llama, Transformer, UNet, resnet
from tenon.torch import from_module, to_module

BATCH = torch.export.Dim("batch")


def assert_close(found: Any, expected: torch.Tensor, relative: float = 1e-4) -> None:
    wanted = expected.detach().numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=relative * max(float(np.abs(wanted).max()), 1e-6))


@pytest.mark.parametrize(("make", "data"), [
    (resnet, lambda: torch.randn(4, 3, 16, 16)), (UNet, lambda: torch.randn(2, 3, 16, 16)),
    (lambda: Transformer(True), lambda: torch.randint(0, 50, (2, 12))), (Llama, lambda: torch.randint(0, 40, (2, 7)))],
    ids=["resnet", "unet", "gpt", "llama"])
def test_a_model_gives_the_same_results_and_gradients(make: Any, data: Any) -> None:
    model, x = make().eval(), data()
    net = from_module(model, (x,))
    found, expected = net(x.numpy()), model(x)
    assert_close(found, expected)
    (found * found).mean().backward()
    (expected * expected).mean().backward()
    expected_gradients = {name: p.grad for name, p in model.named_parameters()}
    for name, parameter in net.named_parameters():
        assert_close(parameter.grad, expected_gradients[name], 1e-3)


def test_sizes_that_change() -> None:
    model = Llama()
    net = from_module(model, (torch.randint(0, 40, (3, 7)),),
                      dynamic_shapes={"words": {0: BATCH, 1: torch.export.Dim("length")}})
    for shape in ((3, 7), (1, 5), (4, 1), (1, 1), (2, 12)):
        words = torch.randint(0, 40, shape)
        assert_close(net(words.numpy()), model(words))


def test_it_is_trained_as_pytorch_trains_it() -> None:
    model, x = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(16, 5)
    net = from_module(model, (x,))
    ours, theirs = tn.optim.Adam(net.parameters(), lr=1e-2), torch.optim.Adam(model.parameters(), lr=1e-2)

    @tn.jit
    def step(x: Any) -> Any:
        loss = (net(x) ** 2).mean()
        loss.backward()
        ours.step(), ours.zero_grad()
        return loss
    for _ in range(4):
        theirs.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        theirs.step()
        assert_close(step(x.numpy()), loss)


def test_buffers_are_updated() -> None:
    model, x = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), torch.randn(16, 5)
    net = from_module(model, (x,))
    for _ in range(3):
        assert_close(net(x.numpy()), model(x))
    for name, buffer in model.named_buffers():
        assert_close(dict(net.named_buffers())[name], buffer)


def test_tied_weights_are_one_tensor() -> None:
    net = from_module(Transformer(False).eval(), (torch.randint(0, 50, (2, 6)),))
    names = [name for name, _ in net.named_parameters()]
    assert len(names) == len(set(names)) == len({id(p) for _, p in net.named_parameters()})


def test_what_is_saved_needs_no_pytorch(tmp_path: Path) -> None:
    model, x = resnet().eval(), torch.randn(2, 3, 16, 16)
    tn.save(tmp_path / "net.safetensors", from_module(model, (x,), dynamic_shapes={"input": {0: BATCH}}))
    np.save(tmp_path / "x.npy", x.numpy())
    code = ("import sys, numpy as np, tenon as tn; sys.modules['torch'] = None; "
            "print(*tn.load('net.safetensors')(np.load('x.npy')).numpy().ravel().tolist())")
    environment = {"PYTHONPATH": str(Path(tn.__file__).parent.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
                          env=environment)
    np.testing.assert_allclose([float(x) for x in done.stdout.split()], model(x).detach().numpy().ravel(), atol=1e-5)


def run_by_onnxruntime(written: Any, *data: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {given.name: x for given, x in zip(session.get_inputs(), data, strict=True)})[0]


@pytest.mark.parametrize("loaded", [False, True])
def test_a_model_leaves_as_an_onnx_file(tmp_path: Path, loaded: bool) -> None:
    pytest.importorskip("onnx")
    model, x = resnet().eval(), torch.randn(4, 3, 16, 16)
    net = from_module(model, (x,), dynamic_shapes={"input": {0: BATCH}})
    if loaded:
        tn.save(tmp_path / "net.safetensors", net)
        net = tn.load(tmp_path / "net.safetensors")
    fixed = tn.onnx.export(net, [x.numpy()])
    open_batch = tn.onnx.export(lambda x: tn.softmax(net(x), axis=-1), ["f32[N, 3, 16, 16]"])
    np.testing.assert_allclose(run_by_onnxruntime(fixed, x.numpy()), model(x).detach().numpy(), atol=1e-5)
    for n in (2, 5):
        x = torch.randn(n, 3, 16, 16)
        wanted = torch.softmax(model(x), -1).detach().numpy()
        np.testing.assert_allclose(run_by_onnxruntime(open_batch, x.numpy()), wanted, atol=1e-5)


class Twice(nn.Module):
    """A buffer that two modules hold, and a mask that is made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Module(), nn.Module()
        self.first.register_buffer("table", torch.randn(3, 4))
        self.second.register_buffer("table", self.first.table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = ~(x > 1) & (x > -1) | (x.sum(1, keepdim=True) > 0)
        return (x * kept) @ self.first.table + self.second.table.sum(0)


def test_a_buffer_of_two_names_is_read_once(tmp_path: Path) -> None:
    model, x = Twice(), torch.randn(5, 3)
    net = from_module(model, (x,))
    tn.save(tmp_path / "net.safetensors", net)
    assert_close(tn.load(tmp_path / "net.safetensors")(x.numpy()), model(x))
    assert len({id(p) for _, p in net.named_buffers()}) == len(net.first.graph.params) - 1 == 1


@pytest.mark.parametrize("opset", [13, 21])
def test_masks_leave_as_logic_of_bools(opset: int) -> None:
    pytest.importorskip("onnx")
    model, x = Twice(), torch.randn(5, 3)
    written = tn.onnx.export(from_module(model, (x,)), [x.numpy()], opset=opset)
    np.testing.assert_allclose(run_by_onnxruntime(written, x.numpy()), model(x).numpy(), atol=1e-5)


def test_what_a_model_does_not_return_is_no_output() -> None:
    pytest.importorskip("onnx")
    net = from_module(Function(lambda x: {"logits": x * 2, "cache": None}), (torch.ones(3),))
    assert net(np.ones(3, np.float32))["cache"] is None
    assert [x.name for x in tn.onnx.export(net, [np.ones(3, np.float32)]).graph.output] == ["output"]


def test_what_is_computed_for_a_check_alone_is_left_out() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._check((x > -100).sum().item() == x.numel())
        return x * 2
    net = from_module(Function(checked), (torch.ones(3),))
    assert [node.op.name for node in net.first.graph.nodes] == ["multiply"]


def test_a_model_is_part_of_a_saved_function(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    net = from_module(model, (x,))
    optimizer = tn.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        loss = net(x).sum()
        loss.backward()
        optimizer.step(), optimizer.zero_grad()
        return loss
    tn.save(tmp_path / "step.safetensors", step, [x.numpy()])
    again, jitted = tn.load(tmp_path / "step.safetensors"), tn.jit(step)
    for _ in range(3):
        np.testing.assert_allclose(again(x.numpy()).numpy(), jitted(x.numpy()).numpy(), rtol=1e-6)


def test_nests_and_python_values_among_arguments_and_results() -> None:
    def f(x: torch.Tensor, pair: Any, *, scale: float) -> Any:
        return {"sum": x + pair[0], "rest": (pair[1]["y"] * scale, x)}
    x, y, z = torch.randn(3), torch.randn(3), torch.randn(2)

    class Nested(nn.Module):
        def forward(self, x: torch.Tensor, pair: Any, *, scale: float) -> Any:
            return f(x, pair, scale=scale)
    net = from_module(Nested(), (x, (y, {"y": z})), {"scale": 2.0})
    found = net(x.numpy(), (y.numpy(), {"y": z.numpy()}), scale=2.0)
    expected = f(x, (y, {"y": z}), scale=2.0)
    assert_close(found["sum"], expected["sum"])
    assert_close(found["rest"][0], expected["rest"][0])
    assert_close(found["rest"][1], x)


def test_what_has_no_form_in_tenon_is_named_with_its_line() -> None:
    model = Function(lambda x: torch.mode(x, 1).values)
    with pytest.raises(tn.errors.ArgumentError, match=r"mode(.|\n)*test_torch_compile.py:\d+"):
        from_module(model, (torch.zeros(2, 2),))


def test_factors_of_matrices_leave_pytorch() -> None:
    x = torch.randn(3, 3)
    found = from_module(Function(torch.linalg.inv), (x,))(tn.tensor(x.numpy()))
    assert np.allclose(found.numpy() @ x.numpy(), np.eye(3), atol=1e-4)


def test_random_numbers_are_refused_with_a_hint() -> None:
    with pytest.raises(tn.errors.ArgumentError, match=r"module.eval\(\)"):
        from_module(nn.Dropout(0.5), (torch.zeros(2, 2),))


# ---------------------------------------------------------------- the other way

def test_a_function_of_tenon_is_a_module_of_pytorch() -> None:
    layer = to_module(lambda x, scale: {"y": tn.tanh(x) * scale, "n": tn.argmax(x)})
    x = torch.randn(4, requires_grad=True)
    found = layer(x, 3)
    torch.testing.assert_close(found["y"], torch.tanh(x) * 3)
    assert int(found["n"]) == int(x.argmax())
    found["y"].sum().backward()
    torch.testing.assert_close(x.grad, (1 - torch.tanh(x.detach()) ** 2) * 3)


def test_its_parameters_are_trained_by_pytorch() -> None:
    ours = to_module(tn.nn.Sequential(tn.nn.Linear(3, 4), tn.nn.Tanh(), tn.nn.Linear(4, 2)))
    theirs = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    x = torch.randn(6, 3)
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in (ours, theirs)]
    for _ in range(4):
        losses = [(model(x) ** 2).sum() for model in (ours, theirs)]
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def test_a_compiled_function_and_no_gradient() -> None:
    layer = to_module(tn.jit(lambda x: x * 2))
    with torch.no_grad():
        assert torch.equal(layer(torch.ones(3)), torch.full((3,), 2.0))
    assert not layer(torch.ones(3)).requires_grad
    assert torch.equal(layer(torch.ones(2, dtype=torch.bfloat16)), torch.full((2,), 2.0, dtype=torch.bfloat16))


def test_what_it_gives_may_be_changed() -> None:
    layer = to_module(lambda x: x)
    x = torch.ones(3)
    layer(x).add_(1)
    assert torch.equal(x, torch.ones(3))


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, torch.sort(x, 1), {"largest": x.max(1)}


def test_pairs_that_pytorch_returns_by_name_are_tuples(tmp_path: Path) -> None:
    x = torch.tensor([[3.0, 1.0, 2.0]])
    function = tn.torch.from_module(Sorted(), (x,))
    tn.save(tmp_path / "sorted.safetensors", function, [tn.tensor(x.numpy())])
    for call in (function, tn.load(tmp_path / "sorted.safetensors")):
        _, (values, places), found = call(tn.tensor(x.numpy()))
        assert (values.tolist(), places.tolist()) == ([[1, 2, 3]], [[1, 2, 0]])
        assert [part.tolist() for part in found["largest"]] == [[3], [0]]
