"""What PyTorch's users write beside operators: methods in place, `x.data`, `x.size(0)`, names at the top level, hooks."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError, GradientError, ShapeError
from tenon.pytorch_in_place import IN_PLACE

X = np.array([[0.25, 0.5], [0.75, 0.125]])
ARGUMENTS: dict[str, tuple[Any, ...]] = dict.fromkeys(
    ("div", "divide", "fmod", "mul", "multiply", "pow", "remainder", "true_divide"), (2.0,)) | {
    "addcdiv": (X, X), "addcmul": (X, X), "addmm": (X, X), "addmv": (X[0] * 0 + X[:1].repeat(2, 0), X[0]), "clamp": (0.3, 0.6),
    "addr": (X[0], X[1]), "clamp_max": (0.3,), "clamp_min": (0.3,), "clip": (0.3, 0.6),
    "index_put": ((np.array([1, 0]),), X), "masked_scatter": (X > 0.3, X), "cumprod": (0,), "cumsum": (1,), "lerp": (X, 0.5), "masked_fill": (X > 0.3, 0.0),
    "logical_and": (X,), "logical_or": (X,), "index_add": (0, np.array([0, 1]), X), "index_copy": (0, np.array([1, 0]), X),
    "index_fill": (1, np.array([0]), 0.0), "scatter": (1, np.zeros((2, 1), int), 5.0),
    "scatter_add": (1, np.zeros((2, 1), int), X[:, :1])}
ARGUMENTS |= dict.fromkeys(("arctan2", "atan2", "copysign", "float_power", "floor_divide", "heaviside", "hypot", "nextafter", "subtract",
                            "xlogy"), (X + 1,)) | {
    "index_reduce": (0, np.array([0, 1]), X), "scatter_reduce": (1, np.zeros((2, 1), int), X[:, :1], "amax"), "ldexp": (2,),
    "igamma": (X,), "igammac": (X,), "polygamma": (2,), "put": (np.array([0, 3]), X[0]), "mvlgamma": (1,), "renorm": (2, 0, 0.5)}
WHOLE = {"bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "gcd", "lcm", "logical_xor"}
SPECIAL = WHOLE | {"acosh", "arccosh", "addbmm", "baddbmm", "addmv", "logical_and", "logical_or", "logical_not"}     # other shapes, other types


def given(name: str) -> tuple[Any, ...]:
    return tuple(tn.asarray(a) if isinstance(a, np.ndarray) else a for a in ARGUMENTS.get(name, ()))


@pytest.mark.parametrize("name", sorted(set(IN_PLACE) - SPECIAL))
def test_in_place_is_the_operator_written_over_its_operand(name: str) -> None:
    x = tn.tensor(X)
    held, wanted = x, getattr(x, name)(*given(name))
    assert getattr(x, f"{name}_")(*given(name)) is x is held
    np.testing.assert_array_equal(x.numpy(), wanted.numpy())


def test_the_default_type_is_float32() -> None:
    tn.set_default_dtype(tn.float32)
    with pytest.raises(ArgumentError, match=r"(?s)float32, not float64.*hint: net.double\(\)"):
        tn.set_default_dtype(tn.float64)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_whole_numbers_in_place(name: str) -> None:
    values = np.array([5, 6]) > 5 if "logical" in name else np.array([5, 6])
    x, more = tn.tensor(values), () if "not" in name else (tn.tensor(values[::-1].copy()),)
    wanted = getattr(x, name)(*more)
    assert getattr(x, f"{name}_")(*more) is x and x.tolist() == wanted.tolist()


def test_random_numbers_in_place() -> None:
    tn.manual_seed(0)
    x = tn.empty(1000)
    assert set(x.random_(2, 5).tolist()) == {2.0, 3.0, 4.0} and set(tn.empty(100, dtype=tn.int64).random_(2).tolist()) == {0, 1}
    assert x.random_().max() < 2 ** 24 + 1 and tn.empty(100, dtype=tn.uint8).random_().max() > 200
    assert 0.4 < x.exponential_(2.0).mean().item() < 0.6 and 2.5 < x.log_normal_(1.0, 0.1).mean().item() < 2.9


def test_what_scripts_say_before_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    for library, switch in ((tn.backends.cudnn, "benchmark"), (tn.backends.cuda.matmul, "allow_tf32")):
        monkeypatch.setattr(library, switch, False)         # and as it was, afterwards
    device = tn.accelerator.current_accelerator() if tn.accelerator.is_available() else tn.device("cpu")
    tn.backends.cudnn.benchmark = tn.backends.cuda.matmul.allow_tf32 = True
    assert not (tn.backends.mps.is_available() or tn.cuda.is_initialized() or tn.xpu.is_available())
    tn.set_float32_matmul_precision("high"), tn.use_deterministic_algorithms(True), tn.set_default_device("cpu")
    with pytest.raises(ArgumentError, match="hint: "):
        tn.set_default_device("cuda")
    x = tn.ones(2, 3, 4).to(device, non_blocking=True, memory_format=tn.channels_last).to(tn.float64, True).contiguous(memory_format=tn.channels_last)
    assert x.stride() == (12, 4, 1) and x.stride(-2) == 4 and x.is_signed() and not tn.tensor(0).is_nonzero()
    assert x.to("cpu", copy=True) is not x and x.to("cpu") is x
    assert nn.Linear(2, 2).to(device, non_blocking=True).weight.dtype is tn.float32
    assert tn.manual_seed(7).initial_seed() == tn.initial_seed() == 7 and tn.typename(x) == "tenon.Tensor"
    assert tn.distributed.is_available() and not tn.distributed.is_initialized() and tn.distributed.get_world_size() == 1
    layers = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    assert type(layers.pop("a")) is nn.ReLU and list(layers) == ["b"] and layers.clear() is None and len(layers) == 0
    assert repr(nn.Linear(1, 1).load_state_dict(nn.Linear(1, 1).state_dict())) == "<All keys matched successfully>"


def test_backward_of_several_tensors() -> None:
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    tn.autograd.backward([y.sum(), y], [None, tn.tensor([1.0, 0.0])])
    assert x.grad.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("run", [lambda f: f, tn.jit])
def test_a_copy_of_a_leaf_leads_back_to_it(run: Any) -> None:
    def copied(w: Any) -> Any:
        v = w.detach() * 2
        v.copy_(w)
        (v * 3).sum().backward()
        return w.grad

    def averaged(w: Any) -> Any:
        v = w.detach() * 2
        with tn.no_grad():
            v.copy_(w)
        return v.requires_grad, v
    w = tn.tensor([1.0, 2.0], requires_grad=True)
    assert run(copied)(w).tolist() == [3.0, 3.0]
    assert run(averaged)(w)[0] is False
    scale = tn.tensor(2.0, requires_grad=True)
    number = tn.tensor(1.0)
    number.fill_(scale)
    (number * 3).backward()
    assert scale.grad.item() == 3.0


@pytest.mark.parametrize("run", [lambda f: f, tn.jit])
def test_operators_in_place_keep_the_type(run: Any) -> None:
    def added(x: Any, y: Any) -> Any:
        x = x * 1
        x += y
        x[:] *= y
        return x
    found = run(added)(tn.ones(2), tn.ones(2, dtype=tn.float64))
    assert (found.dtype, found.tolist()) == (tn.float32, [2.0, 2.0])
    with pytest.raises(ShapeError, match=r"would change i64\[2\] to f64\[2\]"):
        run(added)(tn.ones(2, dtype=int), tn.ones(2, dtype=tn.float64))


def test_in_place_keeps_shape_type_and_tape() -> None:
    whole = tn.tensor([1, 2])
    with pytest.raises(ShapeError, match=r"x.add_\(...\) would change i64\[2\] to f32\[2\]"):
        whole.add_(0.5)
    with pytest.raises(ShapeError, match="would change"):
        tn.ones(2).add_(tn.ones(3, 2))
    leaf = tn.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match="changed in place"):
        leaf.mul_(2)
    (leaf * 3).mul_(leaf).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [6.0, 12.0]
    half = tn.ones(2, dtype="f16").add_(tn.ones(2))
    assert half.dtype is tn.float16 and half.tolist() == [2.0, 2.0]


def test_filled_in_place() -> None:
    x = tn.empty(3, 4)
    assert x.fill_(2).tolist() == [[2.0] * 4] * 3 and x.zero_().sum().item() == 0
    assert x.copy_(tn.arange(4)).tolist() == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert 0.9 < tn.empty(100, 100).normal_(1.0, 2.0).mean().item() < 1.1
    y = tn.empty(1000).uniform_(-1, 1)
    assert -1 <= y.min().item() < -0.9 and 0.9 < y.max().item() <= 1
    assert set(tn.empty(100).bernoulli_(0.5).tolist()) == {0.0, 1.0}
    with pytest.raises(ShapeError):
        x.copy_(tn.ones(5))


def test_data_is_the_tensor_behind_the_back_of_gradients() -> None:
    p = nn.Parameter([1.0, 2.0])
    p.data.add_(tn.ones(2), alpha=-0.5)
    p.data[0] = 7.0
    p.data *= 2
    assert p.tolist() == [14.0, 3.0] and p.requires_grad and p.is_leaf and not p.data.requires_grad
    p.data = tn.zeros(2)
    assert p.tolist() == [0.0, 0.0]

    @tn.jit
    def step(w: Any, g: Any) -> Any:
        w.data.add_(g, alpha=-0.1)
        return w.sum()
    assert [round(step(p, tn.ones(2)).item(), 4) for _ in range(3)] == [-0.2, -0.4, -0.6]


def test_size_is_a_number_and_a_question() -> None:
    x = tn.zeros(2, 3)
    assert x.size == 6 and x.size() == (2, 3) and x.size(0) == 2 and x.size(-1) == 3 and x.size(dim=1) == 3
    assert tn.zeros(x.size).shape == (6,) and x.reshape(x.size).shape == (6,) and tn.arange(9)[:x.size].size == 6
    assert tn.full((2,), x.size).dtype is tn.int64 and tn.result_type(x.size, tn.int8) is tn.int8
    assert type(pickle.loads(pickle.dumps(x.size))) is int and copy.copy(x.size) == 6 and f"{x.size}" == "6"
    with pytest.raises(ArgumentError, match="axis 2 is out of range"):
        x.size(2)
    rows = tn.jit(lambda x: x.view(x.size(0), -1) * x.size(1) + x.size)
    for shape in ((2, 3, 4), (5, 3, 4), (7, 3, 4), (6, 2, 2)):
        assert rows(tn.ones(shape)).tolist() == [[shape[1] + np.prod(shape)] * (shape[1] * shape[2])] * shape[0]


def test_like_another_tensor() -> None:
    x, y = tn.ones(2, 3, dtype="f64"), tn.zeros(6)
    assert x.type_as(y).dtype is tn.float32 and y.view_as(x).shape == (2, 3) and tn.ones(3).expand_as(x).shape == (2, 3)
    assert x.new_zeros(4).dtype is tn.float64 and x.new_ones(2, 2, dtype=tn.int8).dtype is tn.int8
    assert x.new_full((2,), 3).tolist() == [3.0, 3.0] and x.new_tensor([1]).dtype is tn.float64
    assert x.element_size() == 8 and x.nelement() == 6 and x.is_floating_point() and not x.is_complex()
    assert x.short().dtype is tn.int16 and x.byte().dtype is tn.uint8 and x.is_contiguous()


def test_names_at_the_top_level() -> None:
    device = tn.device("cuda" if tn.cuda.is_available() else "cpu")
    assert tn.zeros(2, device=device).to(device).shape == (2,) and device.type == "cpu" and device == "cpu"
    assert nn.Linear(1, 1).to(device).weight.shape == (1, 1)
    with pytest.raises(ArgumentError, match="no device"):
        tn.device("cuda")
    assert (tn.long, tn.float, tn.double, tn.half, tn.int, tn.short) == (
        tn.int64, tn.float32, tn.float64, tn.float16, tn.int32, tn.int16)
    array = np.ones(3)
    assert np.shares_memory(tn.from_numpy(array).numpy(), array) and tn.as_tensor([1, 2]).dtype is tn.int64
    assert tn.is_tensor(tn.ones(1)) and not tn.is_tensor(array) and tn.numel(tn.ones(2, 3)) == 6
    assert tn.Tensor([1, 2]).dtype is tn.float32 and tn.Tensor(2, 3).shape == (2, 3)
    assert tn.FloatTensor([1, 2]).dtype is tn.float32 and tn.LongTensor(2, 3).shape == (2, 3)
    assert tn.clamp_min(tn.arange(3), 1).tolist() == [1, 1, 2] and tn.Size([1, 2]) == (1, 2)
    assert tn.nonzero(tn.tensor([[0, 1]]), as_tuple=False).tolist() == [[0, 1]]


def test_modes_and_states() -> None:
    with tn.set_grad_enabled(False):
        assert not tn.is_grad_enabled()
    with tn.inference_mode():
        assert not tn.is_grad_enabled()
    assert tn.is_grad_enabled()
    state = tn.get_rng_state()
    first = tn.rand(3)
    tn.set_rng_state(state)
    assert tn.rand(3).tolist() == first.tolist()


def test_hooks_see_and_replace_what_goes_in_and_comes_out() -> None:
    net, seen = nn.Sequential(nn.Linear(3, 2), nn.ReLU(True)), []
    before = net[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0,))
    after = net[0].register_forward_hook(lambda module, inputs, output: seen.append((inputs[0].sum().item(), output.shape)))
    net(tn.ones(4, 3))
    assert seen == [(0.0, (4, 2))]
    with net.register_forward_hook(lambda module, inputs, output: output * 0 - 1):
        assert net(tn.ones(1, 3)).tolist() == [[-1.0, -1.0]]
        assert tn.jit(net)(tn.ones(1, 3)).tolist() == [[-1.0, -1.0]]
    before.remove(), after.remove(), after.remove()
    assert net(tn.ones(1, 3)).min().item() >= 0 and len(seen) == 3 and len(list(net.named_modules())) == 3

    class Called(nn.Module):
        def __call__(self, x: Any) -> Any:
            return x
    with pytest.raises(ArgumentError, match="calls no hooks"):
        Called().register_forward_hook(print)


def test_modules_are_added_and_found_by_name() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    net.add_module("last", nn.Linear(2, 5))
    setattr(net, "0", nn.Linear(4, 2))
    assert net(tn.ones(1, 4)).shape == (1, 5) and net.get_submodule("last") is net[1]
    assert net.get_parameter("0.weight").shape == (2, 4)
    with pytest.raises(ArgumentError, match="has no module 'first'"):
        net.get_submodule("first")


def test_items_of_containers_by_name() -> None:
    net = nn.ModuleDict({"wte": nn.Embedding(5, 4), "h": nn.ModuleList([nn.Linear(4, 4)])})
    call = tn.jit(lambda ids: net.h[0](net.wte(ids)))
    ids = tn.tensor([1, 2])
    np.testing.assert_allclose(call(ids).numpy(), net["h"][0](net["wte"](ids)).numpy(), rtol=1e-6)
    net.wte = nn.Embedding(5, 4)
    np.testing.assert_allclose(call(ids).numpy(), net["h"][0](net["wte"](ids)).numpy(), rtol=1e-6)
    assert list(net) == ["wte", "h"] and not hasattr(net, "wpe") and not hasattr(copy.deepcopy(net), "wpe")
    assert isinstance(nn.Sequential({"first": nn.ReLU()}).first, nn.ReLU)


def test_words_for_what_tenon_has_one_way_of() -> None:
    net = nn.Linear(2, 2)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "NAdam", "RAdam"):
        getattr(tn.optim, name)(net.parameters(), lr=0.1, foreach=True, capturable=False)
    with pytest.raises(TypeError, match="forech"):
        tn.optim.SGD(net.parameters(), lr=0.1, forech=True)
    x = tn.tensor([[0.0, 2.0], [3.0, 0.0]])
    assert not x.is_cuda and x.is_cpu and not x.is_sparse and nn.Embedding(3, 2, sparse=True).weight.shape == (3, 2)
    rows, columns = tn.where(x > 0)
    assert rows.tolist() == [0, 1] and columns.tolist() == [1, 0]
    assert x.type(tn.bool).tolist() == [[False, True], [True, False]]
    with pytest.raises(ArgumentError, match="total_steps is needed"):
        tn.optim.OneCycleLR(tn.optim.SGD(net.parameters(), lr=0.1), max_lr=1.0)


def test_slices_of_data_write_through() -> None:
    net = nn.Embedding(4, 3)
    wanted = net.weight.detach().numpy().copy()

    def change(scale: float) -> None:
        net.weight.data[1].fill_(0)
        first, last = net.weight.data[0], net.weight.data[2:, :2]
        first.mul_(scale)
        last.add_(1)
        net.weight.data[3] -= 0.5
    for changed in (change, tn.jit(change)):
        changed(2.0)
        wanted[1], wanted[0] = 0, wanted[0] * 2
        wanted[2:, :2] += 1
        wanted[3] -= 0.5
        np.testing.assert_allclose(net.weight.detach().numpy(), wanted, rtol=1e-6)
    assert net.weight.requires_grad
    whole, first, second = net.weight.data, net.weight.data[0], net.weight.data[1]      # held side by side
    first.fill_(1)
    second.fill_(2)
    whole[2] = 3.0
    assert net.weight[:3].tolist() == [[1] * 3, [2] * 3, [3] * 3]
    with pytest.raises(ArgumentError, match="nobody holds"):
        net.weight.data[[0, 1]].zero_()         # of indices: a copy in PyTorch, too


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_data_that_is_held_changes_what_the_tensor_has_by_now(jitted: bool) -> None:
    def changed(p: Any) -> None:
        data, row = p.data, p.data[1]
        with tn.no_grad():
            p.mul_(10)              # as an optimizer does
        data.add_(1)
        data -= 0.5
        row[0] = 7.0
        row.mul_(2)
        nn.functional.relu_(data)
    p = nn.Parameter(tn.tensor([[1.0, -2.0], [3.0, 4.0]]))
    (tn.jit(changed) if jitted else changed)(p)
    assert p.tolist() == [[10.5, 0.0], [14.0, 81.0]]


def test_an_assignment_that_nobody_would_see_is_refused() -> None:
    x, held = tn.zeros(2, 3), [tn.zeros(2)]
    with pytest.raises(ArgumentError, match=r"a copy that nobody holds") as caught:
        x.reshape(-1)[1] = 1.0
    assert "hint: x[i, j] = value" in str(caught.value)
    with pytest.raises(ArgumentError, match="nobody holds"):
        x.T[1] += 1.0
    row = x[0]
    row[1] = 1.0
    held[0][1] = 2.0
    net = nn.Linear(2, 2)
    net.register_buffer("mask", tn.zeros(2))
    net.mask[0] = 1.0
    net.weight.data[0] = 5.0
    with tn.no_grad():
        net.weight[1] = 7.0
    assert row.tolist() == [0, 1, 0] and held[0].tolist() == [0, 2] and net.mask.tolist() == [1, 0]

    @tn.jit
    def chained(x, branches):
        x = x * 1
        if not branches or x.sum() < 1:
            x[0][1] = 1.0
        return x

    @tn.jit
    def held_by_somebody(x):
        x = x * 1
        rows, matrix = [x[0], x[1]], lambda: x
        rows[0][1] = 1.0
        matrix()[1, 2] = 2.0
        net.weight.data[0] = 6.0
        return x, rows[0]
    for branches in (False, True):
        assert chained(x, branches).tolist() == [[0, 1, 0], [0, 0, 0]]
    assert [y.tolist() for y in held_by_somebody(x)] == [[[0, 0, 0], [0, 0, 2]], [0, 1, 0]]
    assert net.weight[0].tolist() == [6, 6]
    net.weight.data[0] = 5.0
    assert net.weight.tolist() == [[5, 5], [7, 7]] and not x.any()


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_what_was_computed_and_is_written_over_whole_is_no_leaf(jitted: bool) -> None:
    """It may be changed in place again, and passes no gradient on."""
    def f(x: Any) -> Any:
        y = x * 2
        y[:] = 0.5
        y *= 3
        return (y * y).sum() + x.sum()
    slope = tn.jit(tn.grad(f)) if jitted else tn.grad(f)
    np.testing.assert_array_equal(slope(tn.ones(1)).numpy(), [1])


def test_gradients_of_functions_by_name() -> None:
    functional, x = tn.autograd.functional, tn.tensor([1.0, 2.0])
    assert functional.jacobian(lambda a, b: a * b, (x, x))[0].tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert functional.hessian(lambda a: (a ** 3).sum(), x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert functional.hvp(lambda a: (a ** 3).sum(), x, x)[1].tolist() == [6.0, 24.0]
    assert functional.vjp(tn.square, x, x)[1].tolist() == functional.jvp(tn.square, x, x)[1].tolist() == [2.0, 8.0]
    with pytest.raises(ArgumentError, match="v is needed"):
        functional.vjp(tn.square, x)


def test_gradcheck_finds_a_wrong_gradient() -> None:
    class Doubled(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3
    x = tn.tensor([[1.0, 2.0]], dtype="f64", requires_grad=True)
    assert tn.autograd.gradcheck(lambda a, b: (a @ b, a.sin()), (x, x.detach().mT.requires_grad_()))
    assert not tn.autograd.gradcheck(Doubled.apply, (x,), raise_exception=False)
    with pytest.raises(GradientError, match="input 0 is not that of differences"):
        tn.autograd.gradcheck(Doubled.apply, x)


def test_errors_that_programs_of_pytorch_catch() -> None:
    with pytest.raises(RuntimeError, match="wrong shape"):
        nn.Linear(2, 3).load_state_dict({"weight": tn.ones(3, 3)}, strict=False)
    with pytest.raises(KeyError, match="already"):
        nn.Linear(2, 3).register_buffer("weight", tn.ones(1))
    with pytest.raises(RuntimeError, match="no frame of 8"):
        tn.istft(tn.stft(tn.rand(32), 8, 8, window=tn.hann_window(8), return_complex=True), 8, 8, window=tn.hann_window(8))
    with pytest.raises(AttributeError, match="argmax"):
        tn.ones(2, 2).max(1).indices
    with pytest.raises(ShapeError, match="matrix"):
        tn.ones(2).fill_diagonal_(0)


def test_calls_that_only_pytorch_means() -> None:
    assert tn.arange(3)[:, None].repeat(1, 2).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert tn.arange(2).repeat(2, 2).tolist() == [[0, 1, 0, 1]] * 2
    assert tn.ones(2, 3).fill_diagonal_(4).tolist() == [[4.0, 1.0, 1.0], [1.0, 4.0, 1.0]]
    assert tn.inverse(tn.eye(2) * 2).tolist() == [[0.5, 0.0], [0.0, 0.5]]
    for call in (lambda: tn.autocast("cuda", tn.float16), lambda: tn.autocast(device_type="cpu", dtype=tn.float16)):
        with call():
            assert (tn.eye(2) @ tn.eye(2)).dtype is tn.float16


def test_gradients_that_are_no_numbers_are_found_where_it_is_asked_for() -> None:
    def step(scale: float) -> None:
        x = tn.tensor([0.0, 1.0], requires_grad=True)
        (x.sqrt() * scale).sum().backward()
    step(0.0)
    with tn.autograd.detect_anomaly():
        step(1.0)
        with pytest.raises(GradientError, match="NaN among its elements"):
            step(0.0)
    tn.autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(GradientError, match="NaN among its elements"):
            step(0.0)
    finally:
        tn.autograd.set_detect_anomaly(False)
    step(0.0)


def test_a_tensor_is_the_factor_of_a_step() -> None:
    x, rate = tn.ones(2), tn.tensor(0.5, dtype=tn.float64)
    for f in (lambda x, rate: x.addcdiv(x, x, value=rate), lambda x, rate: x.addcmul(x, x, value=rate)):
        assert f(x, rate).tolist() == tn.jit(f)(x, rate).tolist() == [1.5, 1.5]
    x.addcdiv_(x, x * 2, value=-rate)
    assert x.dtype is tn.float32 and x.tolist() == [0.75, 0.75]
