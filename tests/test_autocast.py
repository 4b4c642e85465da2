"""`tn.autocast`: products in bfloat16, sums in float32, the same eagerly and compiled."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import ArgumentError

A, B = tn.asarray(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)), tn.ones((4, 5))


@pytest.mark.parametrize("call", [
    lambda: A @ B, lambda: tn.matmul(A, B), lambda: tn.einsum("ij,jk->ik", A, B), lambda: nn.functional.linear(A, B.T),
    lambda: tn.conv1d(tn.ones((1, 2, 8)), tn.ones((3, 2, 3))),
    lambda: tn.conv_transpose1d(tn.ones((1, 2, 8)), tn.ones((2, 3, 3))),
    lambda: nn.functional.scaled_dot_product_attention(*[tn.ones((1, 2, 3, 4))] * 3),
])
def test_products_are_narrow(call: Callable[[], tn.Tensor]) -> None:
    with tn.autocast():
        assert call().dtype is tn.bfloat16
        assert tn.jit(call)().dtype is tn.bfloat16
    with tn.autocast("float16"):
        assert call().dtype is tn.float16
    assert call().dtype is tn.float32


@pytest.mark.parametrize("call", [
    tn.softmax, tn.log_softmax, tn.sum, tn.mean, tn.var, tn.std, tn.prod, tn.logsumexp, nn.LayerNorm(4), nn.RMSNorm(4),
    lambda x: nn.functional.mse_loss(x, x), lambda x: nn.functional.cross_entropy(x, tn.zeros((3,), dtype="int64")),
])
def test_sums_norms_and_losses_are_wide(call: Callable[..., tn.Tensor]) -> None:
    with tn.autocast():
        assert call(A.astype("bfloat16")).dtype is tn.float32
        assert tn.jit(call)(A.astype("bfloat16")).dtype is tn.float32


def test_other_types_and_operators_are_left_alone() -> None:
    with tn.autocast():
        assert (A.astype("float64") @ B.astype("float64")).dtype is tn.float64
        assert (tn.ones((2, 2), dtype="int32") @ tn.ones((2, 2), dtype="int32")).dtype is tn.int32
        assert tn.relu(A.astype("bfloat16")).dtype is tn.bfloat16
        assert (A + 1).dtype is tn.float32


def test_switched_off_inside_and_nested() -> None:
    switch = tn.autocast()
    with switch:
        with tn.autocast(enabled=False):
            assert (A @ B).dtype is tn.float32 and not tn.is_autocast_enabled()
        with switch:
            assert (A @ B).dtype is tn.bfloat16
        assert tn.get_autocast_dtype() is tn.bfloat16
    assert tn.get_autocast_dtype() is None


def test_other_threads_are_not_meant() -> None:
    found: list[Any] = []
    with tn.autocast():
        thread = threading.Thread(target=lambda: found.append((A @ B).dtype))
        thread.start()
        thread.join()
    assert found == [tn.float32]


def test_decorates_a_function() -> None:
    @tn.autocast()
    def product(n: int) -> Any:
        return (A @ B).dtype if n == 0 else product(n - 1)
    assert product(2) is tn.bfloat16 and (A @ B).dtype is tn.float32


def test_the_type_must_be_narrow() -> None:
    with pytest.raises(ArgumentError, match=r"dtype=float32, expected bfloat16 or float16"):
        tn.autocast("float32")


def test_a_jitted_function_is_captured_for_each() -> None:
    product = tn.jit(lambda a, b: a @ b)
    for _ in range(6):
        assert product(A, B).dtype is tn.float32
        with tn.autocast():
            assert product(A, B).dtype is tn.bfloat16


def test_inside_of_a_jitted_function() -> None:
    @tn.jit
    def both(a: tn.Tensor, b: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        with tn.autocast():
            narrow = a @ b
        return narrow, a @ b
    narrow, wide = both(A, B)
    assert (narrow.dtype, wide.dtype) == (tn.bfloat16, tn.float32)
    np.testing.assert_allclose(np.asarray(narrow.astype("float32")), np.asarray(wide), rtol=1e-2, atol=1e-2)


def network() -> nn.Module:
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def losses(jit: Callable[..., Any], narrow: bool) -> list[float]:
    net = network()
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    def step(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        with tn.autocast(enabled=narrow):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        assert all(p.grad is not None and p.grad.dtype is tn.float32 for p in net.parameters())
        optimizer.step()
        optimizer.zero_grad()
        return loss
    run = jit(step)
    x, y = tn.randn(8, 16), tn.randint(0, 4, (8,))
    return [float(run(x, y)) for _ in range(20)]


def test_training_goes_the_same_way_eagerly_compiled_and_in_float32() -> None:
    eager, compiled, wide = losses(lambda f: f, True), losses(tn.jit, True), losses(tn.jit, False)
    np.testing.assert_allclose(compiled, eager, rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(compiled, wide, rtol=5e-2, atol=5e-3)
    assert compiled[-1] < 0.3 * compiled[0]


def test_gradients_are_computed_in_the_types_of_the_forward_pass() -> None:
    weight = tn.ones((4, 5), requires_grad=True)
    x = A.detach()
    out = x @ weight
    with tn.autocast():
        out.sum().backward()
    assert weight.grad is not None
    np.testing.assert_array_equal(np.asarray(weight.grad), np.asarray(x.T @ tn.ones((3, 5))))


@pytest.mark.parametrize("jit", [lambda f: f, tn.jit])
def test_what_a_checkpoint_computes_again_is_as_narrow_as_it_was(jit: Callable[..., Any]) -> None:
    def gradient(f: Callable[..., Any]) -> np.ndarray:
        weight = tn.asarray(np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)).requires_grad_()

        def run() -> Any:
            with tn.autocast():
                out = f(A, weight)
            out.sum().backward()
            return weight.grad
        return np.asarray(jit(run)())

    def layer(x: tn.Tensor, w: tn.Tensor) -> tn.Tensor:
        return tn.tanh(x @ w) @ w.T
    np.testing.assert_array_equal(gradient(tn.checkpoint(layer)), gradient(layer))


def test_transforms() -> None:
    a, b = tn.randn(3, 4, 5), tn.randn(3, 5, 6)
    with tn.autocast():
        assert tn.vmap(lambda a, b: a @ b)(a, b).dtype is tn.bfloat16
        slope = tn.grad(lambda a: (a @ b).sum())(a)
    assert slope.dtype is tn.float32 and slope.shape == a.shape


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_keep_their_state_wide(layer: Callable[..., Any]) -> None:
    net = layer(8, 8)
    x = tn.randn(5, 2, 8)
    wide = net(x)[0]
    with tn.autocast():
        narrow = net(x)[0]
    assert narrow.dtype is tn.float32
    np.testing.assert_allclose(narrow.numpy(), wide.numpy(), atol=5e-2)


@pytest.mark.parametrize("layer", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_layer_takes_what_a_narrow_product_gave(layer):
    net = layer(4, 5)
    x = tn.ones((3, 2, 4)).to("bfloat16")

    def run(x):
        with tn.autocast():
            return net(x)[0]
    for f in (run, tn.jit(run)):
        assert f(x).shape == (3, 2, 5) and f(x).dtype is tn.float32
