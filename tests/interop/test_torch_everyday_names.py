"""Names of PyTorch that its users write every day: ctc_loss, packed sequences, weight norm, histc, unfold ... equal its own."""

from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from tenon import nn
from tenon.nn import functional as F
from tenon.nn.utils import parametrizations, parametrize, rnn

rng = np.random.default_rng(0)


def both(x: Any) -> tuple[Any, Any]:
    x = np.asarray(x)
    wants = x.dtype.kind == "f"
    return tn.tensor(x, requires_grad=wants), torch.tensor(x, requires_grad=wants)


def close(found: Any, wanted: Any, **tolerance: float) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), **({"rtol": 1e-10, "atol": 1e-12} | tolerance))


def copied(theirs: Any, ours: Any) -> Any:
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    return ours


# ---------------------------------------------------------------- operators

def test_operators_in_pytorchs_form() -> None:
    (x, a), (y, b) = both(rng.normal(size=(4, 6))), both(rng.normal(size=(4, 6)))
    for _ in range(3):          # eager calls are remembered
        close(tn.add(x, y, alpha=2.5), torch.add(a, b, alpha=2.5))
        close(x.add(y, alpha=-2), a.add(b, alpha=-2))
        close(tn.sub(x, y, alpha=3), torch.sub(a, b, alpha=3))
        close(tn.add(x, other=y, alpha=3), torch.add(a, other=b, alpha=3))
        close(tn.max(x, y), torch.max(a, b))
        close(x.min(y), a.min(b))
        close(tn.max(x, other=y), torch.max(a, other=b))
    close(tn.jit(lambda x, y: tn.max(x, y).add(y, alpha=2))(x, y), torch.max(a, b).add(b, alpha=2))
    close(tn.max(x), torch.max(a))
    for axis, size, step in ((0, 3, 1), (1, 2, 2), (-1, 6, 5)):
        close(x.unfold(axis, size, step), a.unfold(axis, size, step))
    tn.add(x, y, alpha=2).sum().backward()
    torch.add(a, b, alpha=2).sum().backward()
    close(y.grad, b.grad)


@pytest.mark.parametrize("options", [{}, {"bins": 7}, {"bins": 5, "min": -1, "max": 1.5}, {"bins": 1, "min": 0.5, "max": 0.5}])
def test_histc(options: dict[str, Any]) -> None:
    x = rng.normal(size=(50,))
    for values in (x, np.round(x * 2) / 2, x[:0], x[:1]):
        wanted = torch.histc(torch.tensor(values), **options)
        close(tn.histc(tn.tensor(values), **options), wanted)
        close(tn.jit(lambda x: tn.histc(x, **options))(tn.tensor(values)), wanted)


def test_vander() -> None:
    for count in (None, 0, 1, 5):
        for increasing in (False, True):
            for x in (np.array([1.5, 0.0, -2.0]), np.array([1, 2, 3]), np.zeros(0)):
                close(tn.vander(tn.tensor(x), count, increasing), torch.vander(torch.tensor(x), count, increasing))
    assert tn.debug.gradcheck(lambda x: tn.vander(x, 4), (tn.tensor(np.array([1.5, 0.0, -2.0])),))


@pytest.mark.parametrize("shape", [(50,), (3, 7), (4, 1)])
def test_mode(shape: tuple[int, ...]) -> None:
    values = rng.integers(0, 4, shape)
    x, a = tn.tensor(values), torch.tensor(values)
    for axis in range(len(shape)):
        wanted = torch.mode(a, axis, True).values
        for found, places in (tn.mode(x, axis, keepdim=True), tn.jit(lambda x: x.mode(axis, True))(x)):  # noqa: B023
            close(found, wanted)
            close(x.gather(axis, places), wanted)
        assert x.mode(axis)[0].shape == x.mode(axis)[1].shape == tuple(torch.mode(a, axis).values.shape)
    found, places = tn.mode(tn.tensor([2.0, np.nan, 1.0, 2.0, 1.0, np.nan]))
    assert (found.item(), places.item()) == (1.0, 4)
    with pytest.raises(ValueError, match="mode: there are no elements along axis 1"):
        tn.mode(tn.zeros(2, 0))


SPECIAL = {"gammainc": 2, "gammaincc": 2, "xlog1py": 2, "xlogy": 2}
AXES = ("log_softmax", "logsumexp", "softmax")


@pytest.mark.parametrize("name", tn.special.__all__)
def test_special_functions(name: str) -> None:
    ours, theirs, values = getattr(tn.special, name), getattr(torch.special, name), rng.uniform(0.1, 0.9, size=(2, 3, 4))
    more: tuple[Any, ...] = (1,) if name in AXES else ()
    if name == "polygamma":
        ours, theirs = (lambda x: tn.special.polygamma(2, x)), (lambda a: torch.special.polygamma(2, a))
    if name == "multigammaln":
        more, values = (2,), values + 1
    pairs = [both(values[k]) for k in range(SPECIAL.get(name, 1))]
    found, wanted = ours(*(x for x, _ in pairs), *more), theirs(*(a for _, a in pairs), *more)
    close(found, wanted)
    if name not in ("gammainc", "gammaincc", "round") and wanted.requires_grad:
        found.sum().backward(), wanted.sum().backward()
        for x, a in pairs:
            close(x.grad, a.grad, rtol=1e-8)


def test_softmax_of_a_number() -> None:
    for name in ("softmax", "log_softmax"):
        for axis in (0, -1):
            x, a = both(2.0)
            ours = getattr(tn, name)
            found, wanted = tn.jit(lambda x: ours(x, axis))(x), getattr(torch, name)(a, axis)  # noqa: B023
            close(found, wanted)
            (getattr(F, name)(x, dim=axis) * 3).backward(), (wanted * 3).backward()
            close(x.grad, a.grad)
    with pytest.raises(IndexError, match="axis 1 is out of range"):
        tn.softmax(tn.tensor(1.0), 1)


@pytest.mark.parametrize(("order", "axis"), [(None, None), (2, None), ("fro", None), ("nuc", None), (1, None), (-np.inf, None),
                                             (3, 1), (None, 0), (None, (0, 1)), (2, (0, 1)), (-2, None)])
def test_norms_of_linalg(order: Any, axis: Any) -> None:
    x, a = both(rng.normal(size=(3, 4)))
    close(tn.linalg.norm(x, order, axis), torch.linalg.norm(a, order, axis))
    close(tn.linalg.norm(x, ord=order, dim=axis, keepdim=True), torch.linalg.norm(a, order, axis, True))
    close(tn.linalg.norm(x[0], 1), torch.linalg.norm(a[0], 1))
    close(tn.norm(x, p="fro"), torch.norm(a, p="fro"))


def test_gumbel_softmax() -> None:
    tn.manual_seed(0)
    logits = tn.tensor(np.log([0.1, 0.2, 0.7]), dtype="f64").expand(20_000, 3)
    hard = F.gumbel_softmax(logits, tau=0.5, hard=True)
    assert set(np.unique(hard.numpy()).round(12)) == {0.0, 1.0}
    np.testing.assert_allclose(hard.numpy().mean(0), [0.1, 0.2, 0.7], atol=0.015)
    x = tn.tensor(rng.normal(size=(4, 5)), requires_grad=True)
    tn.manual_seed(1)
    F.gumbel_softmax(x, tau=2.0, hard=True, dim=0)[0].sum().backward()
    first = x.grad.numpy()
    x.grad = None
    tn.manual_seed(1)
    F.gumbel_softmax(x, tau=2.0, dim=0)[0].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), first)
    assert np.abs(first).sum() > 0


# ---------------------------------------------------------------- ctc

@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("targets", "lengths"), [
    ([[1, 2, 2, 3], [3, 1, 0, 0], [2, 0, 0, 0]], [4, 2, 1]), ([1, 2, 2, 3, 3, 1, 2], [4, 2, 1]), ([[1, 1, 1, 1]] * 3, [4, 0, 2])])
def test_ctc_loss(targets: Any, lengths: list[int], reduction: str) -> None:
    scores, steps = rng.normal(size=(7, 3, 5)), [7, 5, 4]
    x, a = both(scores)
    ours = F.ctc_loss(tn.log_softmax(x, dim=2), tn.tensor(targets), tn.tensor(steps), tn.tensor(lengths), reduction=reduction)
    theirs = torch.nn.functional.ctc_loss(torch.log_softmax(a, 2), torch.tensor(targets), torch.tensor(steps),
                                          torch.tensor(lengths), reduction=reduction)
    close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    close(x.grad, a.grad, atol=1e-9)
    step = tn.jit(lambda x, t, s, n: F.ctc_loss(tn.log_softmax(x, dim=2), t, s, n, reduction=reduction))
    close(step(x.detach(), tn.tensor(targets), tn.tensor(steps), tn.tensor(lengths)), theirs)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_of_texts_that_do_not_fit(zero_infinity: bool) -> None:
    x, a = both(rng.normal(size=(3, 2, 4)))
    options = {"blank": 3, "reduction": "none", "zero_infinity": zero_infinity}
    texts, lengths = [[1, 1, 1], [1, 2, 0]], (3, 2)
    ours = nn.CTCLoss(**options)(tn.log_softmax(x, -1), tn.tensor(texts), (3, 3), lengths)
    theirs = torch.nn.CTCLoss(**options)(torch.log_softmax(a, -1), torch.tensor(texts), (3, 3), lengths)
    close(ours, theirs)
    if zero_infinity:
        ours.sum().backward()
        theirs.sum().backward()
        close(x.grad, a.grad)


def test_ctc_loss_without_a_batch_and_with_mistakes() -> None:
    x, a = both(rng.normal(size=(6, 4)))
    close(F.ctc_loss(tn.log_softmax(x, -1), tn.tensor([1, 2]), tn.tensor(6), tn.tensor(2), reduction="none"),
          torch.nn.functional.ctc_loss(torch.log_softmax(a, -1), torch.tensor([1, 2]), torch.tensor(6), torch.tensor(2), reduction="none"))
    with pytest.raises(ValueError, match="blank=4 is no class of f64"):
        F.ctc_loss(x, tn.tensor([1, 2]), 6, 2, blank=4)
    with pytest.raises(TypeError, match="targets are integers"):
        F.ctc_loss(x, tn.tensor([1.0, 2.0]), 6, 2)
    with pytest.raises(ValueError, match="reduction must be"):
        nn.CTCLoss(reduction="meen")


# ---------------------------------------------------------------- packed sequences

@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(("lengths", "falling"), [([5, 3, 3, 1], True), ([2, 5, 1, 4], False), ([1, 2, 3, 2], False)])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}])
def test_packed_sequences(kind: str, lengths: list[int], falling: bool, options: dict[str, Any]) -> None:
    theirs = getattr(torch.nn, kind)(3, 4, **options).double()
    ours = copied(theirs, getattr(nn, kind)(3, 4, **options).double())
    first = options.get("batch_first", False)
    x, a = both(rng.normal(size=(4, 5, 3) if first else (5, 4, 3)))

    def run(pack: Any, net: Any, x: Any, lengths: Any) -> Any:
        packed = pack.pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=falling)
        out, last = net(packed)
        padded, again = pack.pad_packed_sequence(out, batch_first=first, total_length=6)
        return padded, again, last[0] if isinstance(last, tuple) else last, packed.data, packed.batch_sizes, out.data
    found, wanted = run(rnn, ours, x, lengths), run(torch.nn.utils.rnn, theirs, a, torch.tensor(lengths))
    for one, other in zip(found, wanted, strict=True):
        close(one, other)
    (found[0] ** 2).sum().backward()
    (wanted[0] ** 2).sum().backward()
    close(x.grad, a.grad)
    for (_, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        close(p.grad, q.grad)

    @tn.jit
    def captured(x: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=falling)
        return rnn.pad_packed_sequence(ours(packed)[0], batch_first=first)[0]
    close(captured(x.detach(), tn.tensor(lengths)), run(torch.nn.utils.rnn, theirs, a, torch.tensor(lengths))[0][
        (slice(None), slice(max(lengths))) if first else slice(max(lengths))])


def test_parts_of_packed_sequences() -> None:
    pieces = [rng.normal(size=(n, 2)) for n in (2, 4, 1)]
    ours, theirs = [tn.tensor(p) for p in pieces], [torch.tensor(p) for p in pieces]
    for first in (False, True):
        for side in ("left", "right"):
            close(rnn.pad_sequence(ours, first, -1.0, side), torch.nn.utils.rnn.pad_sequence(theirs, first, -1.0, side))
    one, other = rnn.pack_sequence(ours, enforce_sorted=False), torch.nn.utils.rnn.pack_sequence(theirs, enforce_sorted=False)
    close(one.data, other.data)
    close(one.sorted_indices, other.sorted_indices)
    close(one.unsorted_indices, other.unsorted_indices)
    again = rnn.PackedSequence(one.data * 2, one.batch_sizes, one.sorted_indices, one.unsorted_indices)
    close(rnn.pad_packed_sequence(again)[0], torch.nn.utils.rnn.pad_packed_sequence(other._replace(data=other.data * 2))[0])
    for a, b in zip(rnn.unpad_sequence(*rnn.pad_packed_sequence(one)), theirs, strict=True):
        close(a, b)
    with pytest.raises(ValueError, match=r"lengths do not fall: \[2, 4\]"):
        rnn.pack_padded_sequence(tn.zeros(4, 2), [2, 4])
    with pytest.raises(ValueError, match="must lie between 1 and 4"):
        rnn.pack_padded_sequence(tn.zeros(4, 2), [5, 0])
    with pytest.raises(ValueError, match="2 lengths were expected"):
        rnn.pack_padded_sequence(tn.zeros(4, 2), [3])


# ---------------------------------------------------------------- parametrizations

@pytest.mark.parametrize(("shape", "kind", "based"), [
    ((4, 4), None, True), ((4, 4), "cayley", False), ((5, 3), None, True), ((3, 5), "householder", True), ((3, 5), "matrix_exp", True),
    ((5, 3), "cayley", True)])
def test_orthogonal(shape: tuple[int, int], kind: str | None, based: bool) -> None:
    rows, columns = shape
    options = {"orthogonal_map": kind, "use_trivialization": based}
    theirs = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(columns, rows).double(), **options)
    ours = parametrizations.orthogonal(nn.Linear(columns, rows).double(), **options)
    w = ours.weight.detach().numpy()
    if based:
        np.testing.assert_allclose(w @ w.T if rows <= columns else w.T @ w, np.eye(min(shape)), atol=1e-12)
    with torch.no_grad():
        theirs.parametrizations.weight.original += 0.1 * torch.tensor(rng.normal(size=shape))
    copied(theirs, ours)
    close(ours.weight, theirs.weight)
    x, a = both(rng.normal(size=(2, columns)))
    (tn.jit(ours)(x) ** 3).sum().backward(), (theirs(a) ** 3).sum().backward()
    close(ours.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad)


def test_what_is_computed_can_be_assigned() -> None:
    theirs, ours = torch.nn.Linear(3, 3).double(), nn.Linear(3, 3).double()
    torch.nn.utils.parametrizations.weight_norm(theirs), parametrizations.weight_norm(ours)
    value = rng.normal(size=(3, 3))
    theirs.weight, ours.weight = torch.tensor(value), tn.tensor(value)
    for (name, wanted), (own, found) in zip(sorted(theirs.state_dict().items()), sorted(ours.state_dict().items()), strict=True):
        assert name == own
        close(found, wanted) if "weight" in name else None
    close(ours.weight, theirs.weight)

    class Doubled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Doubled())
    with pytest.raises(ValueError, match="Doubled has no right_inverse"):
        layer.weight = tn.ones(2, 2)


LAYERS = {"Linear": (4, 3), "Conv2d": (2, 3, 3), "ConvTranspose2d": (2, 3, 3)}


def trained(library: Any, net: Any, x: Any) -> list[Any]:
    opt = library.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        opt.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("make", [
    lambda u, layer: u.parametrizations.weight_norm(layer), lambda u, layer: u.parametrizations.weight_norm(layer, dim=None),
    lambda u, layer: u.parametrizations.weight_norm(layer, "weight", 1), lambda u, layer: u.parametrizations.spectral_norm(layer),
    lambda u, layer: u.parametrizations.spectral_norm(layer, n_power_iterations=3, dim=1),
    lambda u, layer: u.weight_norm(layer), lambda u, layer: u.spectral_norm(layer)])
@pytest.mark.filterwarnings("ignore")
def test_normed_weights(make: Any, layer: str) -> None:
    theirs = make(torch.nn.utils, getattr(torch.nn, layer)(*LAYERS[layer]).double())
    ours = copied(theirs, make(nn.utils, getattr(nn, layer)(*LAYERS[layer]).double()))
    assert set(ours.state_dict()) == set(theirs.state_dict())
    x = rng.normal(size=(5, 4) if layer == "Linear" else (2, 2, 6, 6))
    np.testing.assert_allclose(trained(tn, ours, tn.tensor(x)), trained(torch, theirs, torch.tensor(x)), rtol=1e-9)
    close(ours.eval()(tn.tensor(x)), theirs.eval()(torch.tensor(x)))
    close(ours.weight, theirs.weight)
    assert isinstance(ours, getattr(nn, layer))


@pytest.mark.filterwarnings("ignore")
def test_parametrizations_are_removed() -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.numpy().copy()
    parametrizations.weight_norm(layer)
    assert parametrize.is_parametrized(layer, "weight") and type(layer) is not nn.Linear
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and list(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(layer.weight.numpy(), before, rtol=1e-6)
    nn.utils.remove_weight_norm(nn.utils.weight_norm(layer))
    nn.utils.remove_spectral_norm(nn.utils.spectral_norm(layer))
    assert type(layer) is nn.Linear and sorted(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="has none"):
        parametrize.remove_parametrizations(layer, "weight")


def test_a_parametrization_of_ones_own() -> None:
    class Symmetric(nn.Module):
        def forward(self, x: Any) -> Any:
            return tn.triu(x) + tn.triu(x, 1).mT

    class Doubled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2
    layer = nn.Linear(3, 3)
    original = layer.weight.numpy().copy()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Doubled())
    wanted = 2 * (np.triu(original) + np.triu(original, 1).T)
    np.testing.assert_allclose(layer.weight.numpy(), wanted, rtol=1e-6)
    x = tn.ones(2, 3)
    close(tn.jit(lambda x: layer(x))(x), layer(x), rtol=1e-5)
    with tn.no_grad():
        layer.parametrizations.weight.original[...] = 0
    assert not layer.weight.numpy().any()
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]


def test_names_of_modules() -> None:
    import tenon.utils.data
    from tenon.utils.checkpoint import checkpoint
    from tenon.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset, random_split
    assert tenon.utils.data.DataLoader is DataLoader is tn.data.DataLoader and Dataset is tn.data.Dataset
    data = TensorDataset(tn.arange(10))
    assert sorted(x.item() for x, in DataLoader(data, sampler=SubsetRandomSampler([3, 5, 7]))) == [3, 5, 7]
    assert [len(part) for part in random_split(data, [7, 3])] == [7, 3] and checkpoint(lambda x: x + 1, tn.ones(1)).item() == 2


# ---------------------------------------------------------------- names that fewer reach for

@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, float("inf"), 0.0])
def test_pdist(p: float) -> None:
    x, a = both(rng.normal(size=(5, 3)))
    for fn in (F.pdist, tn.jit(lambda x, p: tn.pdist(x, p))):
        close(fn(x, p), torch.pdist(a, p))
    (tn.pdist(x, p) ** 2).sum().backward()
    (torch.pdist(a, p) ** 2).sum().backward()
    assert p == 0 or close(x.grad, a.grad) is None
    with pytest.raises(ValueError, match=r"pdist: a matrix .* not f64\[5\]"):
        tn.pdist(x[:, 0])


@pytest.mark.parametrize("shape", [(4, 4, 4), (5, 3, 2), (2, 6, 4, 4)])
def test_householder_product(shape: tuple[int, ...]) -> None:
    *lead, m, n, k = shape
    (x, a), (tau, b) = both(rng.normal(size=(*lead, m, n))), both(rng.normal(size=(*lead, k)))
    found, wanted = tn.linalg.householder_product(x, tau), torch.linalg.householder_product(a, b)
    close(found, wanted)
    (found * found * found).sum().backward()
    (wanted * wanted * wanted).sum().backward()
    close(x.grad, a.grad, rtol=1e-7, atol=1e-8)
    close(tau.grad, b.grad, rtol=1e-7, atol=1e-8)


def test_bessel_functions() -> None:
    """PyTorch's own are off by up to 3e-7 between 5 and 8, SciPy's are not."""
    x, a = both(np.concatenate([np.linspace(-40, 40, 321), [1e-8, 1e3, np.inf, -np.inf, np.nan, 29.99, 30.01]]))
    scipy = pytest.importorskip("scipy.special")
    for name in ("j0", "j1"):
        found = getattr(tn.special, f"bessel_{name}")(x)
        close(found, getattr(torch.special, f"bessel_{name}")(a), rtol=0, atol=1e-6)
        finite = np.isfinite(x.numpy())
        np.testing.assert_allclose(found.detach().numpy()[finite], getattr(scipy, name)(x.numpy()[finite]), rtol=0, atol=1e-15)
    close(tn.special.modified_bessel_i1(x[:10]), torch.special.modified_bessel_i1(a[:10]))
    y, _ = both(np.array([0.0, 0.5, -3.0]))
    (tn.special.bessel_j0(y) + 2 * tn.special.bessel_j1(y)).sum().backward()
    h, at = 1e-6, torch.tensor([0.0, 0.5, -3.0], dtype=torch.float64)
    slope = [(fn(at + h) - fn(at - h)) / (2 * h) for fn in (torch.special.bessel_j0, torch.special.bessel_j1)]
    close(y.grad, slope[0] + 2 * slope[1], rtol=1e-6, atol=1e-8)


def test_matrices_of_few_singular_values() -> None:
    for shape in ((7, 5), (5, 7), (2, 6, 6)):
        low = rng.normal(size=(*shape[:-1], 2)) @ rng.normal(size=(*shape[:-2], 2, shape[-1]))
        x, a = tn.tensor(low), torch.tensor(low)
        for found, wanted in ((tn.svd_lowrank(x, q=3), torch.svd_lowrank(a, q=3)), (tn.pca_lowrank(x, q=2), torch.pca_lowrank(a, q=2)),
                              (tn.svd_lowrank(x, 2, M=x * 0.5), torch.svd_lowrank(a, 2, M=a * 0.5))):
            assert [y.shape for y in found] == [tuple(b.shape) for b in wanted]
            close(found[1], wanted[1], rtol=1e-7, atol=1e-9)
            close((found[0] * found[1][..., None, :]) @ found[2].mT, (wanted[0] * wanted[1][..., None, :]) @ wanted[2].mT, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="pca_lowrank: q from 0 to 5"):
        tn.pca_lowrank(tn.ones(5, 7), q=6)


def test_poisson() -> None:
    tn.manual_seed(0)
    rates = tn.tensor([0.0, 1.5, 20.0]).broadcast_to((4000, 3))
    drawn = tn.poisson(rates)
    assert drawn.dtype is tn.float32 and bool((drawn == drawn.floor()).all())
    np.testing.assert_allclose(drawn.mean(dim=0).numpy(), [0, 1.5, 20], atol=0.3)
    assert tn.jit(lambda x: tn.poisson(x))(rates).shape == (4000, 3)
    with pytest.raises(ValueError, match=r"poisson: rates are real numbers, not i64"):
        tn.poisson(tn.tensor(3))


@pytest.mark.parametrize(("shape", "kernel", "options"), [
    ((2, 3, 9, 8), 2, {"output_size": (4, 3)}), ((3, 9, 9), (3, 2), {"output_ratio": (0.5, 0.7)}), ((1, 2, 5, 5), 1, {"output_size": 5}),
    ((2, 2, 7, 6, 8), 2, {"output_size": (3, 1, 4)}), ((3, 7, 6, 8), (3, 2, 2), {"output_ratio": 0.5})])
def test_fractional_pooling(shape: tuple[int, ...], kernel: Any, options: dict[str, Any]) -> None:
    count = len(shape) - 2 if shape[0] < 3 else len(shape) - 1
    x, a = both(rng.normal(size=shape))
    lead = shape[:2] if len(shape) == count + 2 else (1, shape[0])
    samples = rng.uniform(size=(*lead, count))
    name = f"fractional_max_pool{count}d"
    best, at = getattr(F, name)(x, kernel, **options, return_indices=True, _random_samples=tn.tensor(samples))
    wanted, places = getattr(torch.nn.functional, name)(a, kernel, **options, return_indices=True, _random_samples=torch.tensor(samples))
    close(best, wanted)
    assert np.array_equal(at.numpy(), places.numpy())
    (best * best).sum().backward()
    (wanted * wanted).sum().backward()
    close(x.grad, a.grad)
    layer = getattr(nn, f"FractionalMaxPool{count}d")(kernel, **options)
    assert layer(x).shape == tuple(wanted.shape)
    with pytest.raises(ValueError, match="one of output_size and output_ratio"):
        getattr(nn, f"FractionalMaxPool{count}d")(2)


def test_printed_numbers() -> None:
    x = tn.tensor([[1 / 3, 1e-6, 2e5]])
    try:
        for options, text in (({"precision": 2}, "tensor([[3.33e-01, 1.00e-06, 2.00e+05]])"), ({"sci_mode": False}, "0.33"),
                              ({"sci_mode": True, "precision": 1}, "tensor([[3.3e-01, 1.0e-06, 2.0e+05]])")):
            tn.set_printoptions(**options)
            assert text in repr(x)
        tn.set_printoptions(profile="full")
        assert "..." not in repr(tn.arange(500))
        with pytest.raises(ValueError, match="no profile 'long'"):
            tn.set_printoptions(profile="long")
    finally:
        tn.set_printoptions(profile="default")
    assert "..." in repr(tn.arange(500))


def test_switches_that_mean_nothing_and_other_words() -> None:
    assert not tn.backends.mps.is_available() and not tn.backends.cuda.matmul.allow_tf32
    tn.backends.cudnn.benchmark = False
    assert tn.float32.is_floating_point and not tn.int64.is_floating_point and tn.complex64.is_complex
    (x, a), (v, b) = both(np.array([[1.0, 2.0, 2.0, 5.0]])), both(np.array([[2.0, 6.0, 0.0]]))
    assert np.array_equal(tn.searchsorted(x, v, right=True).numpy(), torch.searchsorted(a, b, right=True).numpy())
