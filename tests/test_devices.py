"""Logical devices, as a program uses them: where tensors lie, what is computed there, and what is refused."""

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import ArgumentError, DeviceError, GraphError
from tenon.graph.text import parse_graph
from tenon.nn import functional as F

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def three_devices() -> Iterator[None]:
    tn.set_devices(3)
    yield
    tn.set_devices(1)


def on_both(f: Callable[..., Any], *arrays: np.ndarray) -> tuple[Any, Any]:
    """What a function gives of tensors on the first device and on the second."""
    return f(*map(tn.tensor, arrays)), f(*(tn.tensor(a, device="cpu:1") for a in arrays))


# ---------------------------------------------------------------- names

def test_names_of_one_place_are_equal_and_those_of_others_are_not() -> None:
    assert tn.devices() == ("cpu", "cpu:1", "cpu:2", "python")
    assert tn.device("cpu") == tn.device("cpu:0") == tn.device("cpu", 0) == "cpu:0" and tn.device("cpu") != "cpu:1"
    assert tn.device("cpu:1") is tn.device("cpu", 1) and hash(tn.device("cpu:1")) == hash("cpu:1")
    assert (tn.device("cpu:1").type, tn.device("cpu:1").index, tn.device("cpu").index) == ("cpu", 1, None)
    assert copy.deepcopy(tn.device("cpu:1")) is tn.device("cpu:1") and f"{tn.device('cpu:1')}" == "cpu:1"


@pytest.mark.parametrize("name", ["cuda", "cpu:3", "cpu:-1", "cpu:01", "cpu:", "cpu:x", "", 1, 1.5, ["cpu"]])
def test_what_is_no_device_is_refused_with_those_that_are(name: Any) -> None:
    for call in (lambda: tn.device(name), lambda: tn.zeros(2, device=name), lambda: tn.ones(2).to_device(name),
                 lambda: tn.rand(2, device=name), lambda: tn.tensor([1.0], device=name)):
        with pytest.raises(ArgumentError, match="there is no device") as caught:
            call()
        assert "cpu, cpu:1, cpu:2" in str(caught.value)


def test_no_tensor_lies_where_pythons_functions_run() -> None:
    with pytest.raises(ArgumentError, match="no tensor lies on the device python"):
        tn.ones(2).to_device("python")


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2", 10 ** 6])
def test_a_count_that_is_none_is_refused(count: Any) -> None:
    with pytest.raises(ArgumentError, match="set_devices"):
        tn.set_devices(count)
    assert len(tn.devices()) == 4


def test_the_environment_says_how_many_there_are() -> None:
    program = "import tenon as tn; print(*tn.devices(), tn.ones(1, device='cpu:1').device)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT), "TENON_DEVICES": "2"})
    assert done.stdout.split() == ["cpu", "cpu:1", "python", "cpu:1"], done.stderr


def test_tensors_outlive_their_device() -> None:
    x = tn.ones(2, device="cpu:2")
    tn.set_devices(1)
    assert (x + 1).tolist() == [2, 2] and x.cpu().device == "cpu"


# ---------------------------------------------------------------- where tensors are made

MADE: dict[str, Callable[..., Any]] = {
    "zeros": lambda **d: tn.zeros(2, 3, **d), "ones": lambda **d: tn.ones((2,), dtype="int8", **d),
    "empty": lambda **d: tn.empty(2, **d), "full": lambda **d: tn.full((2,), 7, **d),
    "arange": lambda **d: tn.arange(5, **d), "linspace": lambda **d: tn.linspace(0, 1, 4, **d),
    "eye": lambda **d: tn.eye(2, 3, **d), "tensor": lambda **d: tn.tensor([[1.0, 2.0]], **d),
    "asarray": lambda **d: tn.asarray(np.arange(3), **d), "from_dlpack": lambda **d: tn.from_dlpack(np.ones(3), **d),
    "rand": lambda **d: tn.rand(3, **d), "randn": lambda **d: tn.randn(3, **d), "randperm": lambda **d: tn.randperm(4, **d),
    "randint": lambda **d: tn.randint(0, 9, (3,), **d), "fftfreq": lambda **d: tn.fft.fftfreq(4, **d),
    "none": lambda **d: tn.zeros(0, 3, **d), "scalar": lambda **d: tn.tensor(3.0, **d)}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_lies_where_the_argument_or_the_block_says(name: str) -> None:
    make = MADE[name]
    tn.manual_seed(3)
    plain = make()
    for times in range(4):      # equal calls are remembered
        tn.manual_seed(3)
        there = make(device="cpu:1")
        tn.manual_seed(3)
        with tn.device("cpu:2"):
            inside, back = make(), make(device="cpu")
        assert (there.device, inside.device, back.device, make().device) == ("cpu:1", "cpu:2", "cpu", "cpu"), times
        for x in (there, inside):
            assert x.dtype is plain.dtype and x.shape == plain.shape
            np.testing.assert_array_equal(x.numpy(), plain.numpy())


def test_what_is_made_like_a_tensor_lies_beside_it() -> None:
    x = tn.ones(2, 3, device="cpu:1")
    for y in (tn.zeros_like(x), tn.ones_like(x), tn.full_like(x, 3), tn.rand_like(x), tn.randn_like(x), tn.bernoulli(x),
              x.new_zeros(2), x.new_tensor([1]), tn.empty_like(x), tn.normal(x, 1.0), tn.dropout(x), tn.multinomial(x, 2)):
        assert y.device == "cpu:1"
    with tn.device("cpu:2"):
        assert tn.zeros_like(x).device == "cpu:1" and tn.zeros_like(tn.ones(2).cpu()).device == "cpu"


def test_blocks_nest_and_end_with_an_error_too() -> None:
    with tn.device("cpu:1"):
        with pytest.raises(ZeroDivisionError), tn.device("cpu:2"):
            assert tn.ones(1).device == "cpu:2"
            raise ZeroDivisionError
        assert tn.ones(1).device == "cpu:1"
    assert tn.ones(1).device == "cpu"


def test_a_block_is_of_its_thread() -> None:
    found: list[Any] = []
    with tn.device("cpu:1"):
        thread = threading.Thread(target=lambda: found.append(tn.ones(1).device))
        thread.start()
        thread.join()
    assert found == ["cpu"]


def test_a_model_is_made_in_a_block() -> None:
    with tn.device("cpu:1"):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    assert {x.device for x in (*net.parameters(), *net.buffers())} == {"cpu:1"}
    assert net(tn.ones(5, 3, device="cpu:1")).device == "cpu:1"


# ---------------------------------------------------------------- moving

def test_a_tensor_is_moved_by_each_name_of_that() -> None:
    x = tn.tensor([1.0, 2.0])
    there = x.to("cpu:1")
    for y in (there, x.to_device("cpu:1"), x.to(tn.device("cpu:1")), x.to(device="cpu:1"), x.to(there)):
        assert y.device == "cpu:1" and y.tolist() == [1, 2] and x.device == "cpu"
    both = x.to("cpu:1", tn.float16)
    assert both.device == "cpu:1" and both.dtype is tn.float16 and x.astype("f64", device="cpu:2").device == "cpu:2"
    assert there.to("cpu:1") is there and x.to("cpu:0") is x and there.cpu().device == "cpu"
    assert there.to("cpu:2").device == "cpu:2"


def test_a_moved_tensor_shares_nothing() -> None:
    array = np.ones(3)
    x = tn.asarray(array)
    y = x.to("cpu:1")
    array[:] = 5
    assert x.tolist() == [5, 5, 5] and y.tolist() == [1, 1, 1]


def test_gradients_go_back_to_where_a_tensor_came_from() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    w = tn.tensor([3.0, 4.0], requires_grad=True, device="cpu:1")
    loss = ((x.to("cpu:1") * w).to("cpu:2") ** 2).sum()
    loss.backward()
    assert loss.device == "cpu:2" and w.is_leaf and x.grad is not None and w.grad is not None
    assert (x.grad.device, w.grad.device) == ("cpu", "cpu:1")
    np.testing.assert_allclose(x.grad.numpy(), [18, 64])
    np.testing.assert_allclose(w.grad.numpy(), [6, 32])


def test_higher_gradients_cross_devices_too() -> None:
    x = tn.tensor(2.0, requires_grad=True)
    first, = tn.autograd.grad(x.to("cpu:1") ** 3, x, create_graph=True)
    second, = tn.autograd.grad(first, x)
    assert (float(first), float(second), second.device) == (12, 12, "cpu")


# ---------------------------------------------------------------- what is computed there

CALLS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x: (x + 1) * x - 2 / x, "products": lambda x: x @ x.T, "sums": lambda x: x.sum(axis=0),
    "arrays beside": lambda x: x + np.ones(3), "softmax": lambda x: tn.softmax(x, axis=1), "indices": lambda x: x[1:, ::2],
    "a mask": lambda x: x[x > 2], "rows": lambda x: x[np.array([1, 0])], "several": lambda x: tn.topk(x, 2)[1],
    "a list": lambda x: tn.concat([x, x * 2], axis=1), "a definition": lambda x: tn.nn.functional.gelu(x),
    "types": lambda x: x.astype("int32"), "comparison": lambda x: (x > 2) & (x < 5), "sorting": lambda x: x.sort(axis=1),
    "linear algebra": lambda x: tn.linalg.svd(x)[1], "a scalar": lambda x: x.mean(), "shapes": lambda x: x.T.reshape(-1),
    "a loss": lambda x: F.cross_entropy(x, tn.tensor([0, 1], device=x.device)), "fft": lambda x: tn.fft.fft(x),
    "halves": lambda x: x.astype("f16") * 2, "one number": lambda x: x[0, 0] + x[1, 2], "statistics": lambda x: x.var(axis=1),
    "layers": lambda x: F.layer_norm(x, (3,)), "einsum": lambda x: tn.einsum("ij,kj->ik", x, x),
    "windows": lambda x: F.avg_pool1d(x[None], 2), "no elements": lambda x: x[:0].sum(axis=0)}


@pytest.mark.parametrize("name", CALLS)
def test_results_lie_beside_their_operands_and_are_the_same(name: str) -> None:
    for _ in range(4):      # equal calls are remembered, and made by machine code
        plain, there = on_both(CALLS[name], np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], np.float64))
        assert there.device == "cpu:1" and there.dtype is plain.dtype
        np.testing.assert_array_equal(there.numpy(), plain.numpy())


def test_calls_that_machine_code_makes_know_devices() -> None:
    """Thousands of equal calls, of which the last ones are made by machine code, and then the same elsewhere."""
    x, y = tn.ones(3), tn.ones(3, device="cpu:1")
    for _ in range(6000):
        x = x * 1.0
    for _ in range(3):
        assert (y * 1.0).device == "cpu:1" and (y.sum() + 1).device == "cpu:1" and (-y).device == "cpu:1"
        with pytest.raises(DeviceError):
            x * y
        with tn.device("cpu:2"):
            assert tn.zeros(2).device == "cpu:2" and (x + x).device == "cpu"


def test_gradients_lie_beside_the_parameters() -> None:
    def step(w: Any, x: Any) -> Any:
        F.cross_entropy(tn.relu(x @ w) ** 2, tn.tensor([0, 1], device=x.device)).backward()
        return w.grad
    for _ in range(3):
        plain, there = (step(tn.tensor(np.ones((3, 2), np.float32), requires_grad=True, device=d),
                             tn.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=d)) for d in ("cpu", "cpu:1"))
        assert there.device == "cpu:1"
        np.testing.assert_allclose(there.numpy(), plain.numpy(), rtol=1e-6)


def test_transforms_go_on_there() -> None:
    x = tn.ones(4, 3, device="cpu:1")
    slope = tn.grad(lambda a: (a ** 3).sum())(x)
    rows = tn.vmap(lambda a: (a * 2 + tn.ones_like(a)).sum())(x)
    assert slope.device == rows.device == "cpu:1" and rows.tolist() == [9] * 4 and slope.tolist() == [[3] * 3] * 4


def test_a_tensor_there_is_read_printed_copied_and_exported_as_any() -> None:
    x = tn.tensor([[1.5, 2.5]], device="cpu:1")
    assert repr(x) == "tensor([[1.5, 2.5]], device='cpu:1')" and x[0, 1].item() == 2.5 and x.tolist() == [[1.5, 2.5]]
    assert float(x[0, 0]) == 1.5 and bool(x[0, 0] > 1) and len(x) == 1 and [r.device for r in x] == ["cpu:1"]
    for y in (copy.copy(x), copy.deepcopy(x), x.detach()):
        assert y.device == "cpu:1" and y.tolist() == x.tolist()
    assert np.from_dlpack(x).tolist() == np.asarray(x).tolist() == [[1.5, 2.5]] and not x.numpy().flags.writeable
    assert tn.asarray(x).device == "cpu:1" and tn.tensor(x).device == "cpu:1" and tn.from_dlpack(x).device == "cpu"


def test_tensors_there_are_changed_in_place() -> None:
    x = tn.ones(3, device="cpu:1")
    x += 2
    x[0] = 7
    x.assign(x * 2)
    assert x.tolist() == [14, 6, 6] and x.device == "cpu:1"
    x.assign(tn.zeros(3))       # the elements come to it
    assert x.tolist() == [0, 0, 0] and x.device == "cpu:1"


# ---------------------------------------------------------------- what is refused

def test_the_error_names_tensors_devices_line_and_mend() -> None:
    weights, x = tn.ones(3, device="cpu:1"), tn.ones(3)
    with pytest.raises(DeviceError) as caught:
        x * weights
    text = str(caught.value)
    assert "x (f32[3]) is on cpu, weights (f32[3]) on cpu:1" in text and 'weights.to("cpu")' in text
    assert "x * weights" in text and Path(__file__).name in text


MIXED: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: x + y, "product": lambda x, y: x @ y, "concat": lambda x, y: tn.concat([x, y]),
    "where": lambda x, y: tn.where(x > 0, x, y), "loss": F.mse_loss, "in place": lambda x, y: x.__iadd__(y),
    "index": lambda x, y: x[y.astype("int64")], "mask": lambda x, y: x[y > 0], "value": lambda x, y: tn.setitem(x, 0, y[0]),
    "scalar": lambda x, y: x * y[0], "module": lambda x, y: nn.Linear(3, 2)(x + 0) + nn.Linear(3, 2)(y)}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_operands_on_two_devices_are_refused_either_way_round(name: str, gradient: bool) -> None:
    x, y = tn.ones(3, requires_grad=gradient), tn.ones(3, device="cpu:1")
    for a, b in ((x, y), (y, x)):
        for _ in range(3):
            with pytest.raises(DeviceError, match="cpu:1"), tn.no_grad():
                MIXED[name](a, b)
            with pytest.raises((DeviceError, tn.errors.GradientError)):
                MIXED[name](a, b)


# ---------------------------------------------------------------- models and optimizers

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9), "adam": optim.Adam, "adamw": optim.AdamW, "nadam": optim.NAdam,
    "rmsprop": optim.RMSprop, "adagrad": optim.Adagrad}


def parts() -> tuple[Any, Any]:
    tn.manual_seed(0)
    return nn.Linear(4, 8), nn.Linear(8, 3)


def train(front: Any, back: Any, opt: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        rng = np.random.default_rng(step)
        x, y = tn.tensor(rng.random((5, 4)), dtype="f32"), tn.tensor(rng.integers(0, 3, 5))
        z = tn.relu(front(x.to(front.weight.device))).to(back.weight.device)
        loss = F.cross_entropy(back(z), y.to(z.device))
        loss.backward()
        optim.clip_grad_norm([*front.parameters(), *back.parameters()], 1.0)
        opt.step()
        opt.zero_grad()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_of_two_devices_trains_as_on_one_and_its_optimizer_follows(name: str) -> None:
    front, back = parts()
    expected = train(front, back, OPTIMIZERS[name]([*front.parameters(), *back.parameters()]), range(6))
    front, back = parts()
    back.to("cpu:1")
    opt = OPTIMIZERS[name]([*front.parameters(), *back.parameters()])
    found = train(front, back, opt, range(3))
    front.to("cpu:2")
    back.to("cpu:0")
    found += train(front, back, opt, range(3, 6))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for group in opt.param_groups:
        assert {x.device for slot in group.slots.values() for x in slot[:2]} <= {"cpu:2"}
        assert group["lr"].device == "cpu"


def test_a_state_is_loaded_to_where_a_model_is(tmp_path: Path) -> None:
    front, _ = parts()
    front.to("cpu:1")
    tn.save(front.state_dict(), tmp_path / "front.safetensors")
    state = tn.load(tmp_path / "front.safetensors")
    assert {x.device for x in state.values()} == {"cpu"}
    other = nn.Linear(4, 8).to("cpu:2")
    other.load_state_dict(state)
    assert {p.device for p in other.parameters()} == {"cpu:2"} and other.cpu().weight.device == "cpu"
    np.testing.assert_array_equal(other.weight.numpy(), front.weight.numpy())


def test_gradients_move_with_a_module() -> None:
    front, _ = parts()
    front(tn.ones(2, 4)).sum().backward()
    front.to("cpu:1", "f64")
    assert front.weight.grad is not None and front.weight.grad.device == "cpu:1"
    assert front.weight.grad.dtype is tn.float64 and front.weight.is_leaf and front.weight.requires_grad


# ---------------------------------------------------------------- what makes tensors of its own

EVERYWHERE: dict[str, Callable[[str], Any]] = {
    "lstm": lambda d: nn.LSTM(3, 4, num_layers=2, bidirectional=True).to(d)(tn.rand(5, 2, 3, device=d))[0],
    "gru cell": lambda d: nn.GRUCell(3, 4).to(d)(tn.rand(2, 3, device=d)),
    "transformer": lambda d: nn.TransformerEncoderLayer(8, 2, 16).to(d)(tn.rand(3, 2, 8, device=d)),
    "causal": lambda d: F.scaled_dot_product_attention(*(tn.rand(2, 3, 4, device=d) for _ in range(3)), is_causal=True),
    "ctc": lambda d: F.ctc_loss(F.log_softmax(tn.rand(5, 1, 4, device=d), axis=-1), tn.tensor([[1, 2]], device=d), [5], [2]),
    "dropout": lambda d: nn.AlphaDropout(0.5)(nn.Dropout2d(0.5)(tn.rand(1, 2, 3, 3, device=d))),
    "fori_loop": lambda d: tn.fori_loop(0, 3, lambda i, x: x + i, tn.rand(3, device=d)),
    "while_loop": lambda d: tn.while_loop(lambda x: x.sum() < 9, lambda x: x * 2 + 1, tn.rand(3, device=d)),
    "hessian": lambda d: tn.hessian(lambda x: (x ** 3).sum())(tn.rand(3, device=d)),
    "normal": lambda d: tn.distributions.Normal(tn.rand(3, device=d), tn.rand(3, device=d)).sample(),
    "gamma": lambda d: tn.distributions.Gamma(tn.rand(2, device=d) + 1, tn.rand(2, device=d) + 1).sample(),
    "laplace": lambda d: tn.distributions.Laplace(tn.rand(2, device=d), tn.rand(2, device=d) + 1).sample(),
    "several": lambda d: tn.distributions.MultivariateNormal(tn.rand(2, device=d), tn.eye(2, device=d)).sample()}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_what_functions_make_lies_beside_what_they_are_given(name: str) -> None:
    tn.manual_seed(1)
    plain = EVERYWHERE[name]("cpu")
    tn.manual_seed(1)
    there = EVERYWHERE[name]("cpu:1")
    assert (plain.device, there.device) == ("cpu", "cpu:1")
    np.testing.assert_allclose(there.detach().numpy(), plain.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_elements_are_copied_to_where_a_tensor_is() -> None:
    x = tn.zeros(3, device="cpu:1")
    assert x.copy_(tn.ones(3)).device == "cpu:1" and x.tolist() == [1, 1, 1]
    with pytest.raises(DeviceError, match=r"a tensor on cpu:1 was set to one on cpu"):
        x.grad = tn.ones(3)


def test_a_method_with_settings_before_its_tensors_is_named_rightly() -> None:
    x, index = tn.zeros(3, device="cpu:1"), tn.tensor([0, 1])
    with pytest.raises(DeviceError, match=r"x \(f32\[3\]\) is on cpu:1, index \(i64\[2\]\) on cpu\b"):
        x.index_select(0, index)


def test_a_module_elsewhere_is_told_of_without_names() -> None:
    with pytest.raises(DeviceError) as caught:
        nn.Linear(2, 2).to("cpu:1")(tn.ones(1, 2))
    assert caught.value.hint == '.to("cpu") and .to("cpu:1") move tensors and modules'


def test_rows_of_a_data_set_lie_where_its_tensors_are() -> None:
    rows = tn.data.TensorDataset(tn.ones(4, 2, device="cpu:1"))
    assert {x.device for (x,) in tn.data.DataLoader(rows, batch_size=2)} | {rows[1][0].device} == {"cpu:1"}


def test_a_branch_knows_where_its_own_values_are() -> None:
    @tn.jit
    def f(x, least):
        there = x.to("cpu:1")
        if x.sum() > least:
            y = (there.to("cpu:2") * 3).to("cpu")           # it was left out: y was taken to be there
        else:
            y = x - 1
        return y
    x = tn.ones(2)
    assert [f(x, tn.tensor(least)).tolist() for least in (1.0, 9.0)] == [[3, 3], [0, 0]]
    assert f(x, tn.tensor(1.0)).device == f(x, tn.tensor(9.0)).device == "cpu"


def test_branches_that_end_on_two_devices_do_so_as_in_eager_code() -> None:
    @tn.jit
    def f(x, least):
        y = x.to("cpu:1")
        if x.sum() > least:
            y = x * 2
        return y
    assert [f(tn.ones(2), tn.tensor(least)).device for least in (1.0, 9.0)] == ["cpu", "cpu:1"]


def test_a_round_knows_where_its_own_values_are() -> None:
    @tn.jit
    def f(x, most):
        there = x.to("cpu:1")
        while x.sum() < most:
            there = (there.to("cpu:2") * 2).to("cpu:1")
            x = x + there.to("cpu")
        return x, there
    x, there = f(tn.ones(2), tn.tensor(20.0))
    assert (x.device, there.device, x.tolist(), there.tolist()) == ("cpu", "cpu:1", [15, 15], [8, 8])


def test_a_graph_whose_branches_end_on_two_devices_is_refused() -> None:
    with pytest.raises(GraphError, match=r"cond: f32.2. is on cpu:1 where the condition holds, and on cpu where"):
        parse_graph('''
def f(c: bool, x: f32[2]):
    def then(x: f32[2]):
        y: f32[2] @ cpu:1 = to_device(x, device='cpu:1')
        return y
    def otherwise(x: f32[2]):
        y: f32[2] = sin(x)
        return y
    z: f32[2] @ cpu:1 = cond(c, x, true=then, false=otherwise)
    return z
''')
