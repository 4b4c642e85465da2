"""Jitted functions whose tensors lie on several devices: the same numbers as eagerly, where eager code has them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import DeviceError, GraphError
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.nn import functional as F


@pytest.fixture(autouse=True)
def three_devices() -> Iterator[None]:
    tn.set_devices(3)
    yield
    tn.set_devices(1)


def tensors(device: str = "cpu") -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return (tn.tensor(rng.random((4, 3)), dtype="f32"), tn.tensor(rng.random((3, 5)), dtype="f32", device=device))


# ---------------------------------------------------------------- results

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "a move": lambda x, w: x.to("cpu:1") @ w,
    "there and back": lambda x, w: ((x.to("cpu:1") @ w).cpu() + 1, w * 2),
    "three": lambda x, w: tn.relu((x.to("cpu:1") @ w).to("cpu:2") - 1).sum(axis=0),
    "constants": lambda x, w: x.to("cpu:1") @ w + tn.ones(5, device="cpu:1") + np.float32(2),
    "arrays": lambda x, w: w + np.ones(5, np.float32),
    "made in a block": lambda x, w: w * in_block(lambda: tn.arange(5) + tn.full((5,), 0.5)),
    "unused": lambda x, w: (x, w), "one side": lambda x, w: w.sum(), "other side": lambda x, w: x + 1,
    "a branch": lambda x, w: tn.cond(x.sum() > 0, lambda a: a.to("cpu:1") * 2, lambda a: a.to("cpu:1"), x),
    "several results": lambda x, w: tn.topk(w, 2, axis=1), "like": lambda x, w: tn.zeros_like(w) + w,
    "types": lambda x, w: x.to("cpu:1", tn.float64).sum() + w.astype("f64").sum(),
    "like another": lambda x, w: x.to(w)}


def in_block(make: Callable[[], Any]) -> Any:
    with tn.device("cpu:1"):
        return make()


def leaves(found: Any) -> list[Any]:
    return [y for x in found for y in leaves(x)] if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_their_devices_are_those_of_eager_code(name: str) -> None:
    f, (x, w) = FUNCTIONS[name], tensors("cpu:1")
    jitted = tn.jit(f, fullgraph=True)
    expected = leaves(f(x, w))
    for _ in range(4):
        for a, b in zip(leaves(jitted(x, w)), expected, strict=True):
            assert a.device == b.device and a.dtype is b.dtype
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_sizes_change_from_call_to_call() -> None:
    f = tn.jit(lambda x, w: (x.to("cpu:1") @ w).sum(axis=1))
    _, w = tensors("cpu:1")
    for n in (1, 4, 7, 0, 5):
        found = f(tn.ones(n, 3), w)
        assert found.device == "cpu:1" and found.shape == (n,)
        np.testing.assert_allclose(found.numpy(), np.ones((n, 3), np.float32) @ w.numpy().sum(axis=1), rtol=1e-5)


def test_one_function_is_called_on_one_device_and_on_another() -> None:
    f = tn.jit(lambda x: x * 2 + tn.ones(3))
    for device in ("cpu", "cpu:1", "cpu:2", "cpu", "cpu:1"):
        assert f(tn.ones(3, device=device)).device == device
    g = tn.jit(lambda: tn.ones(2) + 1)
    for _ in range(40):             # there are shorter ways then
        assert g().device == "cpu"
    with tn.device("cpu:2"):
        assert g().device == "cpu:2"
    assert g().device == "cpu"


def test_a_function_may_run_with_graph_breaks() -> None:
    @tn.jit
    def f(x: Any, w: Any) -> Any:
        y = x.to("cpu:1") @ w
        seen.append(float(y.sum()))
        return y.cpu() + len(seen)
    seen: list[float] = []
    x, w = tensors("cpu:1")
    for n in range(1, 4):
        np.testing.assert_allclose(f(x, w).numpy(), x.numpy() @ w.numpy() + n, rtol=1e-6)
    assert len(seen) == 3


def test_gradients_may_flow_out_of_a_jitted_function() -> None:
    f = tn.jit(lambda x, w: (x.to("cpu:1") @ w).sum())
    for _ in range(3):
        x, w = (a.detach().requires_grad_() for a in tensors("cpu:1"))
        f(x, w).backward()
        assert x.grad is not None and w.grad is not None and (x.grad.device, w.grad.device) == ("cpu", "cpu:1")
        np.testing.assert_allclose(w.grad.numpy(), np.tile(x.numpy().sum(axis=0)[:, None], (1, 5)), rtol=1e-5)


def test_random_numbers_are_those_of_eager_code() -> None:
    def draw(w: Any) -> Any:
        return w + tn.rand(5, device="cpu:1"), F.dropout(w, 0.5)
    _, w = tensors("cpu:1")
    jitted = tn.jit(draw)
    for seed in range(3):
        tn.manual_seed(seed)
        expected = [*draw(w), *draw(w)]
        tn.manual_seed(seed)
        for a, b in zip([*jitted(w), *jitted(w)], expected, strict=True):
            assert a.device == b.device == "cpu:1"
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


# ---------------------------------------------------------------- training

class Net(nn.Module):
    def __init__(self) -> None:
        self.front, self.back = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.back(tn.relu(self.front(x.to(self.front.weight.device))).to(self.back.weight.device))


def trained(place: Callable[[Any], Any], jit: bool, steps: int = 6) -> tuple[list[float], Any]:
    tn.manual_seed(0)
    net = Net()
    place(net)
    opt = optim.AdamW(net.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        scores = net(x)
        loss = F.cross_entropy(scores, y.to(scores.device))
        loss.backward()
        optim.clip_grad_norm(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss
    run = tn.jit(step, fullgraph=True) if jit else step
    losses = []
    for k in range(steps):
        rng = np.random.default_rng(k)
        losses.append(float(run(tn.tensor(rng.random((5, 6)), dtype="f32"), tn.tensor(rng.integers(0, 3, 5)))))
    return losses, net


def apart(net: Any) -> None:
    net.front.to("cpu:1")
    net.back.to("cpu:2")


@pytest.mark.parametrize("place", [apart, lambda net: net.back.to("cpu:1"), lambda net: net.to("cpu:1")])
def test_a_step_of_several_devices_trains_as_one_of_one_does(place: Callable[[Any], Any]) -> None:
    expected, plain = trained(lambda net: None, jit=False)
    found, net = trained(place, jit=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    eager = Net()
    place(eager)
    for a, b, c in zip(net.parameters(), plain.parameters(), eager.parameters(), strict=True):
        assert a.device == c.device
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_a_parameter_that_moves_is_captured_anew() -> None:
    net = Net()
    net.back.to("cpu:1")
    f = tn.jit(lambda x: net(x), fullgraph=True)
    x = tn.ones(2, 6)
    with tn.no_grad():
        expected = net(x).numpy()
        for device in ("cpu:1", "cpu:2", "cpu", "cpu:1"):
            net.back.to(device)
            for _ in range(3):
                found = f(x)
                assert found.device == device
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_what_is_assigned_stays_where_it_was() -> None:
    total = tn.zeros(3, device="cpu:1")

    @tn.jit(fullgraph=True)
    def add(x: Any) -> None:
        total.assign(total + x.to("cpu:1"))
        total.assign((total * 2).cpu())
    for _ in range(3):
        add(tn.ones(3))
    assert total.tolist() == [14, 14, 14] and total.device == "cpu:1"


# ---------------------------------------------------------------- what is refused

def test_mixed_devices_are_refused_at_the_users_line() -> None:
    x, w = tensors("cpu:1")
    f = tn.jit(lambda scores, weights: scores @ weights)
    for _ in range(3):
        with pytest.raises(DeviceError, match="several devices") as caught:
            f(x, w)
        assert "scores @ weights" in str(caught.value) and '.to("cpu' in str(caught.value)
    assert f(x.to("cpu:1"), w).device == "cpu:1"


# ---------------------------------------------------------------- the text

TEXT = '''\
def step(x: f32[8, 4], w: f32[4, 2] @ cpu:1, p: bool):
    v0: f32[8, 4] @ cpu:1 = to_device(x, device='cpu:1')
    v1: f32[8, 2] @ cpu:1 = matmul(v0, w)
    v2: tuple[f32[8, 2] @ cpu:1, i64[8, 2] @ cpu:1] = cummax(v1, axis=1)
    v3: f32[8, 2] = to_device(v2[0], device='cpu')
    return v3, v2[1]'''


def test_the_text_says_devices_and_is_read_back() -> None:
    graph = parse_graph(TEXT)
    assert print_graph(verify(graph)) == TEXT
    assert print_graph(parse_graph(print_graph(graph))) == TEXT


def test_a_captured_graph_is_read_back() -> None:
    f = tn.jit(lambda x, w: tn.cond(x.sum() > 0, lambda a, b: a.to("cpu:1") @ b, lambda a, b: b[:1] * 2 + np.ones(5, np.float32), x[:1],
                                      w))
    graph = f.graph(*tensors("cpu:1"))
    text = print_graph(graph, locations=False)
    assert " @ cpu:1" in text and print_graph(parse_graph(text), locations=False) == text


@pytest.mark.parametrize(("old", "new", "said"), [
    ("w: f32[4, 2] @ cpu:1", "w: f32[4, 2]", "several devices"),
    ("v1: f32[8, 2] @ cpu:1", "v1: f32[8, 2] @ cpu:2", "stated on cpu:2"),
    ("device='cpu:1'", "device='gpu:1'", "there is no device"),
    ("w: f32[4, 2] @ cpu:1", "w: f32[4, 2] @ cpu:9", "there is no device"),
    ("@ cpu:1, p", "@ cpu:1:2, p", "not valid"), ("@ cpu:1, p", "@ (1 + 1), p", "not a type"),
    ("v0: f32[8, 4] @ cpu:1", "v0: f32[8, 4] @ cpu:1 @ cpu:1", "not a type")])
def test_texts_that_are_wrong_about_devices_are_refused(old: str, new: str, said: str) -> None:
    with pytest.raises((GraphError, DeviceError), match=said):
        verify(parse_graph(TEXT.replace(old, new)))


def test_a_text_attribute_that_looks_like_a_device_stays() -> None:
    text = "def f(x: f32[3] @ cpu:1):\n    v0: f32[3] @ cpu:1 = to_device(x, device='cpu:1')  # a @ cpu:1\n    return v0"
    assert print_graph(parse_graph(text), locations=False).splitlines()[-1] == "    return v0"


def test_gradients_of_examples_go_back_to_the_device_of_the_examples():
    x, scale = tn.rand(5, 3), tn.rand(5).to("cpu:1")
    rows = tn.vmap(tn.grad(lambda a, b: (a * a).sum().to("cpu:1") * b))
    for run in (rows, tn.jit(lambda x, scale: rows(x, scale))):
        found = run(x, scale)
        assert found.device == "cpu"
        np.testing.assert_allclose(found.numpy(), 2 * x.numpy() * scale.cpu().numpy()[:, None], rtol=1e-6)
