"""A loaded function is a function: any size it was saved for, gradients, transforms, training; anything else is said."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tenon as tn
from tenon import nn, optim
from tenon.errors import ArgumentError, CaptureError, DTypeError, ShapeError


class Net(nn.Module):
    def __init__(self) -> None:
        self.down, self.up = nn.Linear(4, 8), nn.Linear(8, 4)

    def encode(self, x: Any) -> Any:
        return tn.tanh(self.down(x))

    def decode(self, z: Any) -> Any:
        return self.up(z)

    def forward(self, x: Any) -> Any:
        return self.decode(self.encode(x))


@pytest.fixture
def net() -> Net:
    tn.manual_seed(0)
    return Net()


@pytest.fixture
def loaded(net: Net, tmp_path: Path) -> Any:
    tn.save(tmp_path / "net", net, ["f32[B, 4]"])
    return tn.load(tmp_path / "net")


def test_the_weights_are_tensors_of_the_file(net: Net, loaded: Any, tmp_path: Path) -> None:
    assert {name: x.shape for name, x in load_file(tmp_path / "net").items()} == \
        {name: x.shape for name, x in net.state_dict().items()}
    Net().load_state_dict(loaded.state_dict())


@pytest.mark.parametrize("size", [0, 1, 2, 4, 5, 8, 100])
def test_a_named_size_may_be_any(net: Net, loaded: Any, size: int) -> None:
    x = tn.randn(size, 4)
    np.testing.assert_allclose(loaded(x).numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_what_a_function_asks_of_a_size_is_kept(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        if n == 6:
            return x * 6
        if n > 50:
            return x - 1
        return x + 0.5 if n % 2 else x * 0.5
    tn.save(tmp_path / "f", f, ["f32[N]"])
    again = tn.load(tmp_path / "f")
    for n in (0, 1, 2, 3, 6, 9, 12, 50, 51, 52, 333):
        assert again(tn.ones(n)).tolist() == f(tn.ones(n)).tolist(), n


def test_two_sizes_may_be_equal(tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        return x.sum() + y.sum() if x.shape[0] == y.shape[0] else x.sum() - y.sum()
    tn.save(tmp_path / "f", f, ["f32[M]", "f32[N]"])
    again = tn.load(tmp_path / "f")
    for m, n in ((3, 3), (3, 4), (1, 1), (1, 5), (5, 1)):
        assert again(tn.ones(m), tn.ones(n)).item() == f(tn.ones(m), tn.ones(n)).item(), (m, n)


def test_a_size_whose_number_is_needed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="f needs the number behind the size N"):
        def f(x: Any) -> Any:
            return x * math.sqrt(x.shape[0])
        tn.save(tmp_path / "f", f, ["f32[N]"])
    assert not list(tmp_path.iterdir())


def test_gradients_of_weights_and_inputs(net: Net, loaded: Any) -> None:
    x, y = tn.randn(3, 4, requires_grad=True), tn.randn(3, 4, requires_grad=True)
    y.assign(x.detach())
    (net(x) ** 2).sum().backward()
    (loaded(y) ** 2).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-5, atol=1e-6)
    for name, p in loaded.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), dict(net.named_parameters())[name].grad.numpy(), rtol=1e-5, atol=1e-6)


def test_no_gradient_passes_where_none_passed(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        with tn.no_grad():
            y = x * 2
        return y, x.detach() * x
    tn.save(tmp_path / "f", f, ["f32[3]"])
    x = tn.ones(3, requires_grad=True)
    y, z = tn.load(tmp_path / "f")(x)
    assert not y.requires_grad and z.requires_grad
    z.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("transform", "rows"), [
    (tn.jit, 0), (tn.grad, 0), (tn.hessian, 0), (lambda f: tn.jit(tn.grad(f)), 0), (tn.vmap, 2),
    (lambda f: tn.vmap(tn.grad(f)), 2), (lambda f: tn.jit(tn.vmap(f)), 2),
    (lambda f: tn.jit(lambda x: tn.scan(lambda c, row: (c + f(row), f(row)), tn.tensor(0.0), x)[1]), 4)])
def test_transforms_go_through_a_loaded_function(tmp_path: Path, transform: Any, rows: int) -> None:
    def f(x: Any) -> Any:
        y = tn.cond(x.sum() > 0, lambda x: tn.sin(x), lambda x: x * x, x)
        return (y * x).sum()
    tn.save(tmp_path / "f", f, ["f32[3]"])
    again, x = tn.load(tmp_path / "f"), tn.randn(rows, 3) if rows else tn.randn(3)
    np.testing.assert_allclose(transform(again)(x).numpy(), transform(f)(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_loaded_model_is_trained_further(net: Net, loaded: Any) -> None:
    x, results = tn.randn(6, 4), []
    for model in (net, loaded):
        opt = optim.Adam(model.parameters(), lr=0.05)

        @tn.jit
        def step(x: Any, model: Any = model, opt: Any = opt) -> Any:
            loss = ((model(x) - x) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        results.append([step(x).item() for _ in range(8)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)
    assert results[0][-1] < results[0][0]


def test_several_functions_share_their_weights(net: Net, tmp_path: Path) -> None:
    opt = optim.SGD(net.parameters(), lr=0.5)

    def step(x: Any) -> Any:
        loss = ((net(x) - x) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    tn.save(tmp_path / "m", {"encode": (net.encode, ["f32[6, 4]"]), "decode": (net.decode, ["f32[6, 8]"]),
                             "step": (step, ["f32[6, 4]"])})
    model, x = tn.load(tmp_path / "m"), tn.randn(6, 4)
    assert list(model.functions) == ["encode", "decode", "step"]
    for _ in range(3):
        expected = tn.jit(net.decode)(tn.jit(net.encode)(x))
        assert model.decode(model.encode(x)).tolist() == expected.tolist()
        assert model.step(x).item() == tn.jit(step)(x).item()


def test_a_loaded_model_is_saved_again_as_it_is_now(net: Net, tmp_path: Path) -> None:
    def step(x: Any) -> Any:
        net.down.bias.assign(net.down.bias.detach() + x.sum())
        return net.down.bias.detach() + tn.rand(8)
    tn.save(tmp_path / "a", step, ["f32[2]"])
    one = tn.load(tmp_path / "a")
    one(tn.ones(2))
    tn.save(tmp_path / "b", one)
    two = tn.load(tmp_path / "b")
    assert one(tn.ones(2)).tolist() == two(tn.ones(2)).tolist()


def test_gradients_that_a_step_leaves_are_added_up(tmp_path: Path) -> None:
    w = nn.Parameter([1.0, 2.0])

    def f(x: Any) -> None:
        (w * x).sum().backward()
    for there in (False, True):
        tn.save(tmp_path / "f", f, ["f32[2]"])
        model = tn.load(tmp_path / "f")
        model(tn.ones(2))
        model(tn.ones(2))
        assert next(model.parameters()).grad.tolist() == [2 + there, 2 + there]
        if not there:
            f(tn.ones(2))


@pytest.mark.parametrize(("args", "error", "words"), [
    ((tn.zeros(3, 5),), ShapeError, r"Net takes \(x: f32\[B, 4\]\), and is given \(f32\[3, 5\]\)"),
    ((tn.zeros(4),), ShapeError, r"Net: x takes f32\[B, 4\], and is given f32\[4\]"),
    ((np.zeros((3, 4)),), DTypeError, r"Net: x takes f32\[B, 4\], and is given f64\[3, 4\]"),
    ((), ArgumentError, r"Net takes \(x: f32\[B, 4\]\), and was given 0 positional arguments"),
    ((tn.zeros(3, 4), 1), ArgumentError, "was given 2 positional arguments"),
    (({"x": 1},), ArgumentError, "Net: x takes .*, and is given a dict of 'x'"),
    ((None,), ArgumentError, "Net: x takes .*, and is given a NoneType")])
def test_wrong_arguments_are_named(loaded: Any, args: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        loaded(*args)


def test_arguments_by_name_and_lists_and_numbers(loaded: Any, tmp_path: Path) -> None:
    assert loaded(x=[[1, 2, 3, 4]]).shape == (1, 4)

    def f(x: Any, options: Any, k: int = 2) -> Any:
        return x * options["a"] + k
    tn.save(tmp_path / "f", f, {"x": tn.tensor(1.0), "options": {"b": 1, "a": tn.tensor(2.0)}, "k": 5})
    again = tn.load(tmp_path / "f")
    assert again(k=5, options={"a": 3, "b": 1}, x=2).item() == 11
    with pytest.raises(ArgumentError, match="f was saved for k = 5, and is given 6"):
        again(k=6, options={"a": 3, "b": 1}, x=2)


def test_what_is_not_data_is_refused(tmp_path: Path) -> None:
    calls, x = [], tn.zeros(3)

    def counts(x: Any) -> Any:
        calls.append(1)
        return x

    def makes_an_object(x: Any) -> Any:
        return object()

    def needs_a_value(x: Any) -> Any:
        return x * float(np.asarray(x).sum())
    for function, words in ((counts, "counts changes a list"), (makes_an_object, "object"),
                            (needs_a_value, "needs_a_value cannot be saved")):
        with pytest.raises((ArgumentError, CaptureError), match=words):
            tn.save(tmp_path / "f", function, (x,))
    with pytest.raises(ArgumentError, match="the argument x is a object, which no file holds"):
        tn.save(tmp_path / "f", counts, (object(),))
    with pytest.raises(ArgumentError, match="a function is saved for what it takes"):
        tn.save(tmp_path / "f", counts)
    with pytest.raises(ArgumentError, match="inputs are for a function"):
        tn.save(tmp_path / "f", {"x": x}, (x,))
    assert calls == [] and not list(tmp_path.iterdir())


def test_operators_of_the_user_are_refused(tmp_path: Path) -> None:
    @tn.op
    def saved_twice(x: Any) -> Any:
        return x * 2
    with pytest.raises(ArgumentError, match=r"the operator saved_twice is not Tenon's own"):
        tn.save(tmp_path / "f", lambda x: saved_twice(x), (tn.zeros(3),))


def test_a_state_of_another_type_is_not_run(loaded: Any) -> None:
    loaded(tn.zeros(2, 4))
    loaded.double()
    with pytest.raises(ArgumentError, match="a tensor of its state became f64"):
        loaded(tn.zeros(2, 4))


def test_a_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    tn.manual_seed(5)
    tn.save(tmp_path / "f", lambda: tn.randn(3), ())
    model = tn.load(tmp_path / "f")
    assert [model().tolist() for _ in range(2)] == [tn.randn(3).tolist() for _ in range(2)]


def test_what_is_left_in_two_places_is_one_tensor_there_too(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y, [y], x
    tn.save(tmp_path / "f", f, ["f32[2]"])
    x = tn.ones(2)
    one, (two,), three = tn.load(tmp_path / "f")(x)
    assert one is two and three is x


def test_sizes_that_fail_are_no_reason_against_others(tmp_path: Path) -> None:
    tn.save(tmp_path / "f", lambda x: x.reshape(-1, 2).sum(axis=1), ["f32[N]"])
    pairs = tn.load(tmp_path / "f")
    assert [pairs(tn.ones(n)).shape[0] for n in (0, 2, 4, 100)] == [0, 1, 2, 50]
    with pytest.raises(ShapeError, match="saved for other sizes"):
        pairs(tn.ones(5))


def test_calls_that_come_often_see_what_changes(net: Net, loaded: Any) -> None:
    """They take a fast path, which looks at types, sizes, flags, gradients and weights."""
    x = tn.randn(3, 4)
    for _ in range(20):
        before = loaded(x)
    assert loaded(x).requires_grad and not before.grad
    with tn.no_grad():
        for _ in range(20):
            silent = loaded(x)
        assert not silent.requires_grad
        next(loaded.parameters()).assign(tn.zeros(8, 4))
        assert loaded(x).tolist() != silent.tolist()
        assert loaded(x[:2]).shape == (2, 4)
    with pytest.raises(DTypeError):
        loaded(x.astype("float64"))
    loaded.requires_grad_(False)
    assert not loaded(x).requires_grad
    y = x.detach().requires_grad_()
    loaded(y).sum().backward()
    assert y.grad is not None and tn.jit(lambda x: loaded(x))(x).shape == (3, 4)


def test_an_assert_on_data_is_checked_where_the_function_is_loaded(tmp_path: Path) -> None:
    def checked(x: Any) -> Any:
        assert x.sum() > 0, "nothing in it"
        return x * 2
    tn.save(tmp_path / "f.safetensors", checked, (tn.ones(3),))
    loaded = tn.load(tmp_path / "f.safetensors")
    assert loaded(tn.ones(3)).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(CaptureError, match="where the function raises AssertionError: nothing in it"):
        loaded(-tn.ones(3))
