"""Lazy layers, methods in place, and further names of PyTorch's: the same as its own."""

import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError, ShapeError
from tenon.nn import functional as F

X = np.array([[0.25, -0.5, 2.0], [0.75, 0.125, 3.0]])


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert str(found.numpy().dtype) == str(wanted.detach().numpy().dtype)


@pytest.mark.parametrize(("name", "args"), [
    ("squeeze_", ()), ("unsqueeze_", (0,)), ("t_", ()), ("transpose_", (0, 1)), ("swapaxes_", (0, 1)), ("swapdims_", (0, 1)),
    ("eq_", (0.25,)), ("ge_", (0.5,)), ("gt_", (0.5,)), ("le_", (0.5,)), ("lt_", (0.5,)), ("ne_", (0.25,)),
    ("greater_", (0.5,)), ("less_equal_", (0.5,)), ("not_equal_", (0.25,)), ("conj_physical_", ()),
    ("apply_", (lambda v: v * 2 + 1,))])
def test_methods_in_place(name: str, args: Any) -> None:
    x, y = tn.tensor(X), torch.tensor(X)
    assert getattr(x, name)(*args) is x
    getattr(y, name)(*args)
    close(x, y)
    jitted = tn.jit(lambda x: getattr(x * 1, name)(*args))
    if name != "apply_":
        close(jitted(tn.tensor(X)), y)


def test_two_tensors_in_place() -> None:
    a, b = abs(X) + 0.5, abs(X.T.reshape(2, 3)) + 0.25
    for name in ("igamma_", "igammac_"):
        close(getattr(tn.tensor(a), name)(tn.tensor(b)), getattr(torch.tensor(a), name)(torch.tensor(b)))
    close(tn.tensor(a).map_(tn.tensor(b), lambda p, q: p * q), torch.tensor(a).map_(torch.tensor(b), lambda p, q: p * q))
    at, values = np.array([0, 5]), np.array([9.0, 8.0])
    close(tn.tensor(a).put_(tn.tensor(at), tn.tensor(values)), torch.tensor(a).put_(torch.tensor(at), torch.tensor(values)))
    close(tn.igamma(tn.tensor(a), tn.tensor(b)), torch.igamma(torch.tensor(a), torch.tensor(b)))
    close(tn.igammac(tn.tensor(a), tn.tensor(b)), torch.igammac(torch.tensor(a), torch.tensor(b)))


@pytest.mark.parametrize("name", ["relu_", "sigmoid_", "exp_", "zero_", "tanh_", "square_", "neg_", "trunc_"])
def test_functions_in_place(name: str) -> None:
    x, y = tn.tensor(X), torch.tensor(X)
    assert getattr(tn, name)(x) is x
    close(x, getattr(torch, name)(y))


@pytest.mark.parametrize(("name", "args"), [("relu_", ()), ("leaky_relu_", (0.2,)), ("elu_", ()), ("selu_", ()), ("celu_", ()),
                                            ("hardtanh_", ()), ("threshold_", (0.5, 7.0))])
def test_activations_in_place(name: str, args: Any) -> None:
    x = tn.tensor(X)
    assert getattr(F, name)(x, *args) is x
    close(x, getattr(torch.nn.functional, name)(torch.tensor(X), *args))


def test_pieces() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for name, how in (("hsplit", 3), ("vsplit", 2), ("dsplit", 2), ("dsplit", [1, 3]), ("hsplit", [1])):
        for found, wanted in zip(getattr(tn, name)(tn.tensor(x), how), getattr(torch, name)(torch.tensor(x), how), strict=True):
            close(found, wanted)
    close(tn.hsplit(tn.arange(4.0), 2)[1], torch.hsplit(torch.arange(4.0), 2)[1])
    a, b = tn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    pairs = [(lambda t, x: t.as_strided(x, (3, 2), (2, 5), 1)), (lambda t, x: t.slice_scatter(x, x[:, :2] * 0, 1, 0, 3, 2)),
             (lambda t, x: t.select_scatter(x, x[:, 0] * 2, 1, 2)), (lambda t, x: x.as_strided((2, 4), (12, 1)))]
    for make in pairs:
        close(make(tn, a), make(torch, b))
        close(tn.jit(make, constants=True)(tn, a), make(torch, b))
        close(tn.autograd.grad((make(tn, a) ** 2).sum(), a)[0], torch.autograd.grad((make(torch, b) ** 2).sum(), b)[0])
    with pytest.raises(ShapeError, match="outside"):
        tn.as_strided(tn.arange(5), (3, 3), (2, 1))


def test_other_names() -> None:
    x, y = tn.tensor(X), torch.tensor(X)
    close(x.msort(), y.msort())
    close(tn.rsub(x, x * 2, alpha=3), torch.rsub(y, y * 2, alpha=3))
    close(tn.chain_matmul(x, x.T, x), torch.linalg.multi_dot((y, y.T, y)))
    close(tn.nuclear_norm(x), torch.linalg.matrix_norm(y, "nuc"))
    close(tn.frobenius_norm(x, (0, 1)), torch.linalg.vector_norm(y))
    close(tn.norm_except_dim(x, 2, 0), torch.norm_except_dim(y, 2, 0))
    for found, wanted in zip(tn.histogram(x, 4, range=(0.0, 2.0)), torch.histogram(y, 4, range=(0.0, 2.0)), strict=True):
        close(found, wanted)
    close(tn.frombuffer(b"\x01\x02\x03", dtype=tn.uint8), torch.frombuffer(bytearray(b"\x01\x02\x03"), dtype=torch.uint8))
    close(x.sum_to_size(1, 3), y.sum_to_size(1, 3))
    close(x.new([1, 2]), y.new([1, 2]))
    assert x.new(2, 3).shape == (2, 3) and x.new().shape == (0,) and x.nbytes == y.nbytes and x.itemsize == y.itemsize
    assert tn.promote_types(tn.int64, tn.float32) is tn.float32 and x.get_device() == y.get_device() == -1
    assert isinstance(x, tn.DoubleTensor) and not isinstance(x, tn.FloatTensor) and tn.ShortTensor([1]).dtype is tn.int16
    tn.manual_seed(0)
    drawn = tn.binomial(tn.full((1000,), 10.0), tn.full((1000,), 0.3))
    assert 2.8 < drawn.mean().item() < 3.2 and drawn.min().item() >= 0 and drawn.max().item() <= 10
    drawn = tn.empty(2000).geometric_(0.25)
    assert 3.7 < drawn.mean().item() < 4.3 and drawn.min().item() == 1
    assert abs(tn.quantile(tn.empty(4000).cauchy_(2.0, 0.5), 0.75).item() - 2.5) < 0.1
    assert 0.2 < tn.full((1000,), 0.25).bernoulli().mean().item() < 0.3


def test_a_tensors_type_is_called_to_convert_it() -> None:
    x, y = tn.tensor(X), torch.tensor(X)
    for ours, theirs in ((tn.float32, torch.float32), (tn.LongTensor, torch.LongTensor), ("torch.FloatTensor",) * 2):
        close(x.type(ours), y.type(theirs))
        close((x > 0).type(ours), (y > 0).type(theirs))
        close(tn.jit(lambda x: (x > 0).type(ours))(x), (y > 0).type(theirs))    # noqa: B023
    assert x.type() == y.type() and x.bool().type() == y.bool().type()
    assert x.type == tn.tensor(X).type and hash(x.type) == hash(tn.tensor(X).type) and pickle.loads(pickle.dumps(x.type)) == x.type
    close(x.topk(2, 1, True, True)[0], y.topk(2, 1, True, True)[0])


def test_what_nobody_holds_is_not_changed_in_silence() -> None:
    x, net = tn.zeros(2, 3), nn.Linear(3, 2)
    for change in (lambda: x[0].fill_(1), lambda: x.view(-1).add_(1), lambda: nn.init.constant_(x[0], 1), lambda: F.relu_(x.t())):
        change()        # what it returns is used

    def dropped(k: int) -> None:
        if k == 0:
            x.t().fill_(1)
        elif k == 1:
            x.view(-1).add_(1)
        elif k == 2:
            nn.init.constant_(x[:1], 1)
        else:
            F.relu_(x.t())
    for k in range(4):
        with pytest.raises(ArgumentError, match="nobody holds"):
            dropped(k)
    x.data.fill_(2)
    net.bias.data.zero_()
    nn.init.ones_(net.weight)
    assert x.sum().item() == 12 and net.weight.sum().item() == 6


# ---------------------------------------------------------------- layers

def copied(theirs: Any, ours: Any) -> Any:
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    return ours


@pytest.mark.parametrize(("name", "args", "shape"), [
    ("LazyLinear", (4,), (2, 3)), ("LazyConv1d", (4, 3), (2, 3, 8)), ("LazyConv2d", (4, 3), (2, 3, 8, 8)),
    ("LazyConv3d", (4, 2), (2, 3, 4, 4, 4)), ("LazyConvTranspose2d", (4, 3), (2, 3, 5, 5)), ("LazyBatchNorm1d", (), (2, 3, 5)),
    ("LazyBatchNorm2d", (), (2, 3, 5, 5)), ("LazyInstanceNorm2d", (), (2, 3, 5, 5))])
def test_lazy_layers(name: str, args: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    theirs, ours = getattr(torch.nn, name)(*args).double(), nn.Sequential(getattr(nn, name)(*args)).double().train()
    theirs(torch.tensor(x))
    with pytest.raises(ArgumentError, match="no parameters before its first call"):
        list(ours.parameters())
    ours(tn.tensor(x))
    assert type(ours[0]).__name__ == name[4:] and isinstance(ours[0], getattr(nn, name[4:]))
    copied(theirs, ours[0])
    close(ours(tn.tensor(x)), theirs(torch.tensor(x)))


def test_embedding_with_a_largest_norm() -> None:
    weight, at = np.random.default_rng(0).normal(size=(5, 3)), np.array([[0, 3], [3, 4]])
    for norm_type in (2.0, 1.0):
        ours = nn.Embedding(5, 3, max_norm=1.0, norm_type=norm_type, _weight=tn.tensor(weight))
        theirs = torch.nn.Embedding(5, 3, max_norm=1.0, norm_type=norm_type, _weight=torch.tensor(weight))
        close(ours(tn.tensor(at)), theirs(torch.tensor(at)))
        close(ours.weight, theirs.weight)


def test_a_compiled_module_is_a_module() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    compiled = tn.compile(net)
    assert list(compiled.state_dict()) == [f"_orig_mod.{name}" for name in net.state_dict()]      # as in PyTorch
    compiled.eval()
    x = tn.randn(5, 3)
    close(compiled(x), net(x))
    assert not net.training and len(list(compiled.parameters())) == 4


def test_layers_are_made_for_a_device() -> None:
    options = {"device": tn.device("cpu"), "dtype": tn.float64}
    for layer in (nn.Linear(2, 3, **options), nn.Conv2d(2, 3, 1, **options), nn.LSTM(2, 3, **options), nn.LayerNorm(3, **options),
                  nn.Embedding(3, 2, **options), nn.BatchNorm1d(3, **options), nn.MultiheadAttention(4, 2, **options),
                  nn.TransformerEncoderLayer(4, 2, 8, **options), nn.GRUCell(2, 3, **options), nn.PReLU(**options)):
        assert all(p.dtype is tn.float64 for p in layer.parameters())
    assert nn.Linear(2, 3, True, "cpu").weight.dtype is nn.Linear(2, 3, True, None, None).weight.dtype is tn.float32
    assert nn.DataParallel(nn.Linear(2, 3)).module(tn.ones(1, 2)).shape == (1, 3)
    assert nn.modules.conv.Conv2d is nn.Conv2d and nn.modules.utils._pair(3) == (3, 3)


def test_sparse_adam_moves_the_rows_that_have_a_gradient() -> None:
    weight = np.random.default_rng(0).normal(size=(5, 3))
    ours, theirs = nn.Embedding(5, 3, _weight=tn.tensor(weight)), torch.nn.Embedding(5, 3, _weight=torch.tensor(weight), sparse=True)
    step = tn.optim.SparseAdam(ours.parameters(), lr=0.1, eps=1e-3), torch.optim.SparseAdam(theirs.parameters(), lr=0.1, eps=1e-3)
    for at in ([0, 3], [3, 3, 4], [0]):
        for net, opt, make in ((ours, step[0], tn.tensor), (theirs, step[1], torch.tensor)):
            opt.zero_grad()
            (net(make(at)) ** 2).sum().backward()
            opt.step()
    close(ours.weight, theirs.weight)


def test_files_that_are_open() -> None:
    file = io.BytesIO()
    tn.save({"w": tn.ones(2), "epoch": 3}, file)
    file.seek(0)
    found = tn.load(file)
    assert found["epoch"] == 3 and found["w"].tolist() == [1.0, 1.0]


def test_words_of_torch_jit() -> None:
    @tn.jit.script
    def double(x: Any) -> Any:
        return x * 2

    class Net(nn.Module):
        @tn.jit.ignore
        def other(self) -> int:
            return 3

        @tn.jit.export
        def forward(self, x: Any) -> Any:
            return x * self.other() if not tn.jit.is_scripting() else x
    x = tn.ones(2)
    assert double(x).tolist() == [2.0, 2.0] and tn.jit.trace(Net(), x)(x).tolist() == [3.0, 3.0]


def test_arguments_of_what_makes_tensors() -> None:
    x = tn.ones(2, 3)
    for make in (tn.zeros_like, tn.ones_like, tn.empty_like, tn.rand_like, tn.randn_like):
        found = make(x, memory_format=tn.preserve_format, device="cpu", requires_grad=True)
        assert found.shape == (2, 3) and found.requires_grad
    assert tn.normal(0, 0.01, size=(2, 1), requires_grad=True).requires_grad
    assert x.clone(memory_format=tn.contiguous_format).tolist() == x.float(memory_format=tn.preserve_format).tolist() == x.tolist()
