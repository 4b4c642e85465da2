"""Layers and functions against their formulas in NumPy, in float64; edge cases and what errors say."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError, DTypeError, OutOfRange, ShapeError
from tenon.types import bfloat16, float32

rng = np.random.default_rng(0)


def same(got: tn.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_layer_norm_and_rms_norm() -> None:
    x, w, b = rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=5)
    same(tn.layer_norm(tn.tensor(x), 5, tn.tensor(w), tn.tensor(b), eps=1e-3),
         (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3) * w + b)
    same(tn.rms_norm(tn.tensor(x), (5,), tn.tensor(w), eps=1e-3),
         x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3) * w)


def test_batch_norm_follows_the_batch_then_what_it_saw() -> None:
    layer = nn.BatchNorm2d(2, momentum=0.25).double()
    x = rng.normal(size=(3, 2, 4, 5)) * 3 + 1
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    normal = (x - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-5)
    same(layer(tn.tensor(x)), normal)
    same(layer.running_mean, 0.25 * mean)
    same(layer.running_var, 0.75 + 0.25 * var * 60 / 59)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    seen = layer.running_var.numpy()[:, None, None]
    same(layer(tn.tensor(x)), (x - 0.25 * mean[:, None, None]) / np.sqrt(seen + 1e-5))
    assert layer.num_batches_tracked.item() == 1 and not layer.running_mean.requires_grad


def test_norms_of_16_bit_inputs_are_computed_in_32() -> None:
    x = tn.tensor((rng.normal(size=(4, 256)) + 100).astype(np.float32))
    exact = tn.layer_norm(x.astype("bfloat16").astype("float32"), 256)
    got = tn.layer_norm(x.astype("bfloat16"), 256)
    assert got.dtype is bfloat16
    np.testing.assert_allclose(got.numpy().astype(np.float32), exact.numpy(), atol=0.02)


def test_softmax_of_extremes() -> None:
    assert tn.softmax(tn.tensor([1000.0, 0.0, -1000.0])).tolist() == [1, 0, 0]
    assert tn.log_softmax(tn.tensor([1000.0, 0.0])).tolist() == [0, -1000]
    assert tn.softmax(tn.zeros((2, 0))).shape == (2, 0)
    assert tn.softmax(tn.tensor(3.0).reshape(1)).tolist() == [1]
    assert np.isnan(tn.softmax(tn.tensor([np.nan, 1.0])).tolist()).all()
    assert tn.softplus(tn.tensor([-1000.0, 1000.0])).tolist() == [0, 1000]
    assert tn.logsigmoid(tn.tensor([-1000.0, 1000.0])).tolist() == [-1000, 0]


def test_attention() -> None:
    q, k, v = (rng.normal(size=(2, 3, 4)) for _ in range(3))
    scores = q @ k.swapaxes(1, 2) / 2
    scores[:, *np.triu_indices(3, 1)] = -np.inf
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    same(tn.scaled_dot_product_attention(*map(tn.tensor, (q, k, v)), is_causal=True), weights @ v)
    mask = np.array([[True, False, False], [False, False, False], [True, True, True]])
    found = tn.scaled_dot_product_attention(*map(tn.tensor, (q, k, v)), attn_mask=tn.tensor(mask)).numpy()
    np.testing.assert_allclose(found[:, 0], v[:, 0])
    assert not found[:, 1].any()


def test_grouped_queries_share_keys() -> None:
    q, k, v = (tn.tensor(rng.normal(size=(1, h, 3, 4))) for h in (4, 2, 2))
    found = tn.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    same(found[:, 3], tn.scaled_dot_product_attention(q[:, 3], k[:, 1], v[:, 1]).numpy())


def test_cross_entropy_counts_only_what_is_not_ignored() -> None:
    x, y = rng.normal(size=(4, 3)), np.array([0, 2, -100, 1])
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    same(tn.cross_entropy(tn.tensor(x), tn.tensor(y)), -(logp[0, 0] + logp[1, 2] + logp[3, 1]) / 3)
    assert np.isnan(tn.cross_entropy(tn.tensor(x), tn.full((4,), -100)).item())
    assert tn.cross_entropy(tn.tensor(x), tn.full((4,), -100), reduction="sum").item() == 0
    for bad in (3, -1):
        with pytest.raises(OutOfRange):
            tn.cross_entropy(tn.tensor(x), tn.tensor([0, 1, 2, bad]))


def test_embedding_takes_no_gradient_at_its_padding() -> None:
    layer = nn.Embedding(4, 2, padding_idx=1)
    assert layer.weight.numpy()[1].tolist() == [0, 0]
    layer(tn.tensor([[0, 1, 0], [1, 3, 1]])).sum().backward()
    assert layer.weight.grad.tolist() == [[2, 2], [0, 0], [0, 0], [1, 1]]
    frozen = nn.Embedding.from_pretrained(tn.ones(3, 2))
    assert not frozen.weight.requires_grad and frozen(tn.tensor(2)).tolist() == [1, 1]


@pytest.mark.parametrize("layer", [nn.Dropout(0.25), nn.Dropout2d(0.25)])
def test_dropout_keeps_the_mean(layer: nn.Module) -> None:
    tn.manual_seed(0)
    x = tn.ones(200, 50, 2, 2)
    y = layer(x).numpy()
    assert set(np.unique(y)) == {0, np.float32(4 / 3)} and abs(y.mean() - 1) < 0.02
    if isinstance(layer, nn.Dropout2d):
        assert (y == y[:, :, :1, :1]).all()
    assert layer.eval()(x) is x
    assert not nn.Dropout(1.0)(x).numpy().any()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    tn.manual_seed(0)
    y = nn.AlphaDropout(0.3)(tn.randn(100_000)).numpy()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02


def test_a_gru_layer_is_its_cell_repeated() -> None:
    tn.manual_seed(0)
    layer, cell = nn.GRU(3, 4), nn.GRUCell(3, 4)
    cell.load_state_dict({name.removesuffix("_l0"): x for name, x in layer.state_dict().items()})
    x, h = tn.randn(5, 2, 3), None
    out, last = layer(x)
    for t in range(5):
        h = cell(x[t], h)
        np.testing.assert_allclose(out[t].numpy(), h.numpy(), rtol=1e-5, atol=1e-6)
    assert last.shape == (1, 2, 4)


INITS = [
    ("uniform_", {"a": -2.0, "b": 4.0}, 1.0, 6 / np.sqrt(12)), ("normal_", {"mean": 1.0, "std": 3.0}, 1.0, 3.0),
    ("trunc_normal_", {}, 0.0, 0.8796), ("xavier_uniform_", {"gain": 2.0}, 0.0, 2 * np.sqrt(2 / 500)),
    ("xavier_normal_", {}, 0.0, np.sqrt(2 / 500)),
    ("kaiming_uniform_", {"nonlinearity": "relu"}, 0.0, np.sqrt(2 / 300)),
    ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}, 0.0, np.sqrt(2 / 200)),
    ("sparse_", {"sparsity": 0.5, "std": 1.0}, 0.0, np.sqrt(0.5)),
]


@pytest.mark.parametrize(("name", "options", "mean", "std"), INITS)
def test_init(name: str, options: dict, mean: float, std: float) -> None:
    tn.manual_seed(1)
    t = nn.Parameter(tn.zeros(200, 300))
    assert getattr(nn.init, name)(t, **options) is t and t.requires_grad and t.dtype is float32
    values = t.numpy()
    assert abs(values.mean() - mean) < 0.03 * max(std, 1) and abs(values.std() / std - 1) < 0.02
    if name == "trunc_normal_":
        assert np.abs(values).max() <= 2
    if name == "sparse_":
        assert ((values == 0).sum(0) == 100).all()


def test_init_of_structured_weights() -> None:
    q = nn.init.orthogonal_(nn.Parameter(np.zeros((4, 2, 3)))).numpy().reshape(4, 6)
    np.testing.assert_allclose(q @ q.T, np.eye(4), atol=1e-12)
    assert nn.init.eye_(nn.Parameter(tn.zeros(2, 3))).tolist() == [[1, 0, 0], [0, 1, 0]]
    x = tn.randn(1, 2, 5)
    weight = nn.init.dirac_(nn.Parameter(tn.zeros(2, 2, 3)))
    assert tn.conv1d(x, weight, padding=1).tolist() == x.tolist()
    assert nn.init.calculate_gain("leaky_relu", 1.0) == 1.0
    one, two = (tn.manual_seed(3) and nn.Linear(3, 3).weight.tolist() for _ in range(2))
    assert one == two


def test_parameters_as_a_vector() -> None:
    net = nn.Linear(2, 2)
    vector = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(vector * 2, net.parameters())
    assert net.weight.numpy().ravel().tolist() == (vector * 2).tolist()[:4]
    with pytest.raises(ShapeError, match=r"the parameters have 6 elements, the vector is f32\[5\]"):
        nn.utils.vector_to_parameters(vector[:5], net.parameters())


def test_functional_takes_the_names_of_pytorch() -> None:
    x = tn.ones(2, 4)
    F = nn.functional
    assert F.softmax(input=x, dim=0).tolist() == [[0.5] * 4] * 2
    assert F.max_pool1d(x, kernel_size=2).shape == (2, 2)
    assert F.relu(x, inplace=True) is x
    with pytest.raises(AttributeError, match=r"tenon\.nn\.functional' has no attribute 'head_attention'"):
        F.head_attention


ERRORS = [
    (lambda: nn.Conv2d(3, 4, 3)(tn.ones(1, 2, 5, 5)), ShapeError, "has 2 channels"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ShapeError,
     "Conv2d: 3 input and 4 output channels do not divide into 2 groups"),
    (lambda: nn.BatchNorm1d(3)(tn.ones(1, 3)), ArgumentError, "training needs more than one value a channel"),
    (lambda: nn.BatchNorm2d(3)(tn.ones(2, 3)), ShapeError, "BatchNorm2d: the input must have 4 axes, it is f32[2, 3]"),
    (lambda: nn.BatchNorm1d(3)(tn.ones(2, 4)), ShapeError, "batch_norm: f32[2, 4] has 4 channels"),
    (lambda: nn.LayerNorm(3)(tn.ones(2, 4)), ShapeError, "layer_norm: the last sizes of f32[2, 4] are not [3]"),
    (lambda: nn.GroupNorm(2, 3), ShapeError, "GroupNorm: 3 channels do not divide into 2 groups"),
    (lambda: nn.Embedding(3, 2)(tn.tensor([3])), OutOfRange, "index 3"),
    (lambda: nn.Embedding(3, 2)(tn.ones(3)), DTypeError, "indices must be integers"),
    (lambda: nn.MultiheadAttention(5, 2), ArgumentError, "embed_dim 5 does not divide into 2 heads"),
    (lambda: tn.scaled_dot_product_attention(tn.ones(2, 3, 4), tn.ones(2, 3, 5), tn.ones(2, 3, 4)), ShapeError,
     "attention: q f32[2, 3, 4], k f32[2, 3, 5] and v f32[2, 3, 4] do not fit"),
    (lambda: nn.LSTM(3, 4)(tn.ones(2, 5, 2)), ShapeError, "LSTM: sequences of 3 features"),
    (lambda: nn.GRU(3, 4)(tn.ones(2, 5, 3), tn.ones(1, 4, 4)), ShapeError, "GRU: the first state must be [1, 5, 4]"),
    (lambda: nn.Dropout(1.5), ArgumentError, "Dropout: p must be a probability, not 1.5"),
    (lambda: tn.cross_entropy(tn.ones(2, 3), tn.tensor([0, 1, 2])), ShapeError,
     "cross_entropy: scores f32[2, 3] need class indices of shape [2], the target is i64[3]"),
    (lambda: tn.cross_entropy(tn.ones(2, 3), tn.ones(2)), ShapeError, "need class probabilities of shape [2, 3]"),
    (lambda: tn.mse_loss(tn.ones(2, 1), tn.ones(2)), ShapeError,
     "mse_loss: the prediction f32[2, 1] and the target f32[2] differ in shape"),
    (lambda: tn.mse_loss(tn.ones(2), tn.ones(2), reduction="avg"), ArgumentError,
     "mse_loss: reduction must be 'mean', 'sum' or 'none', not 'avg'"),
    (lambda: tn.gelu(tn.ones(2), approximate="fast"), ArgumentError, "gelu: approximate must be 'none' or 'tanh'"),
    (lambda: tn.glu(tn.ones(2, 3)), ShapeError, "glu: axis 1 of f32[2, 3] must have an even size"),
    (lambda: nn.Upsample(scale_factor=2, mode="bilinear")(tn.ones(1, 2, 3)), ShapeError,
     "interpolate: mode 'bilinear'"),
    (lambda: nn.TransformerEncoderLayer(4, 2, activation="silu"), ArgumentError, "activation must be 'relu', 'gelu'"),
]


@pytest.mark.parametrize(("call", "kind", "text"), ERRORS, ids=[text for _, _, text in ERRORS])
def test_errors(call: object, kind: type, text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert text in caught.value.what


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_gradients_of_rows_are_divided_by_how_often_they_are_read(wrap: object) -> None:
    at, weight = tn.tensor([0, 1, 0]), tn.tensor([[1.0, np.inf], [2.0, 3.0], [4.0, 5.0]])

    def read(w: tn.Tensor) -> tn.Tensor:
        return nn.functional.embedding(at, w, scale_grad_by_freq=True)
    np.testing.assert_array_equal(wrap(read)(weight).numpy(), weight[at].numpy())
    np.testing.assert_array_equal(wrap(tn.grad(lambda w: read(w).sum()))(weight).numpy(), [[1, 1], [1, 1], [0, 0]])
    weight.requires_grad_()
    wrap(read)(weight).sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [[1, 1], [1, 1], [0, 0]])
    with tn.no_grad():
        np.testing.assert_array_equal(wrap(read)(weight).numpy(), weight[at].numpy())
