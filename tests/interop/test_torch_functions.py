"""Activations and losses against torch.nn.functional: values and gradients of every floating input, in float64."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.nn import functional as F

torch = pytest.importorskip("torch")

ACTIVATIONS = [
    ("relu", {}), ("leaky_relu", {"negative_slope": 0.2}), ("relu6", {}), ("elu", {"alpha": 1.5}), ("selu", {}),
    ("celu", {"alpha": 1.5}), ("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {}), ("mish", {}),
    ("softplus", {"beta": 2.0, "threshold": 3.0}), ("softsign", {}), ("hardtanh", {"min_val": -0.5, "max_val": 0.7}),
    ("hardsigmoid", {}), ("hardswish", {}), ("logsigmoid", {}), ("glu", {"dim": 1}),
    ("threshold", {"threshold": 0.3, "value": 9.0}), ("tanhshrink", {}), ("softshrink", {"lambd": 0.4}),
    ("hardshrink", {"lambd": 0.4}), ("softmax", {"dim": 0}), ("softmin", {"dim": 1}), ("log_softmax", {"dim": -1}),
    ("normalize", {"p": 3.0, "dim": 0}), ("local_response_norm", {"size": 4, "alpha": 0.3}),
    ("layer_norm", {"normalized_shape": (6,)}), ("rms_norm", {"normalized_shape": (6,)}),
    ("pad", {"pad": (1, 2, 0, 1), "value": 2.0}), ("pixel_shuffle", {"upscale_factor": 1}),
]


def check(name: str, arrays: list[np.ndarray], options: dict[str, Any]) -> None:
    mine = [tn.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    fixed = name == "soft_margin_loss"      # whose target must not require a gradient there
    others = [torch.tensor(a, requires_grad=a.dtype == np.float64 and not (fixed and k)) for k, a in enumerate(arrays)]
    extra = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    y = getattr(F, name)(*mine, **{k: tn.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})
    z = getattr(torch.nn.functional, name)(*others, **extra)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-10)
    weight = np.random.default_rng(5).normal(size=z.shape)
    (y * weight).sum().backward()
    (z * torch.tensor(weight)).sum().backward()
    for x, other in zip(mine, others):
        if other.grad is not None:
            tolerance = 1e-7 if name == "hardsigmoid" else 1e-8      # theirs multiplies by 1/6 rounded to float32
            np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=tolerance, atol=1e-9)


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS)
def test_activation(name: str, options: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(4, 6)) * 3
    x = x[None] if name in ("pixel_shuffle", "local_response_norm") else x
    check(name, [x], options)


@pytest.mark.parametrize(("name", "options"), [
    c for c in ACTIVATIONS if c[0] in (
        "relu", "leaky_relu", "relu6", "elu", "celu", "selu", "hardtanh", "hardsigmoid", "threshold", "softshrink",
        "hardshrink", "softsign", "gelu", "silu")])
def test_activation_at_its_corners(name: str, options: dict[str, Any]) -> None:
    check(name, [np.array([0.0, 6.0, 3.0, -3.0, -0.5, 0.7, 0.3, 0.4, -0.4, 200.0, -200.0])], options)


rng = np.random.default_rng(1)
X, Y = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
P, Q = rng.uniform(0.05, 0.95, (5, 4)), rng.uniform(0.05, 0.95, (5, 4))
SIGN = np.where(rng.uniform(size=(5, 4)) < 0.5, -1.0, 1.0)
CLASSES, W = np.array([0, 3, 1, 1, 2]), np.array([0.5, 1.0, 2.0, 0.1])
IMAGE, LABELS = rng.normal(size=(2, 4, 3, 2)), rng.integers(0, 4, (2, 3, 2))

LOSSES = [
    ("cross_entropy", [X, CLASSES], {}), ("cross_entropy", [X, CLASSES], {"weight": W, "label_smoothing": 0.2}),
    ("cross_entropy", [X, CLASSES], {"ignore_index": 1}), ("cross_entropy", [X, Q / Q.sum(1, keepdims=True)], {}),
    ("cross_entropy", [X, Q / Q.sum(1, keepdims=True)], {"weight": W, "label_smoothing": 0.2}),
    ("cross_entropy", [IMAGE, LABELS], {"weight": W, "ignore_index": 2, "label_smoothing": 0.1}),
    ("cross_entropy", [X[0], np.array(2)], {}), ("cross_entropy", [X[0], Q[0]], {}),
    ("nll_loss", [X, CLASSES], {"weight": W, "ignore_index": 1}), ("nll_loss", [IMAGE, LABELS], {}),
    ("mse_loss", [X, Y], {}), ("l1_loss", [X, Y], {}), ("smooth_l1_loss", [X, Y], {"beta": 0.7}),
    ("huber_loss", [X, Y], {"delta": 0.7}), ("poisson_nll_loss", [X, P * 4], {"full": True}),
    ("poisson_nll_loss", [P, P * 4], {"log_input": False}), ("gaussian_nll_loss", [X, Y, P], {"full": True}),
    ("gaussian_nll_loss", [X, Y, P[:, 0]], {}), ("binary_cross_entropy", [P, Q], {"weight": W}),
    ("binary_cross_entropy_with_logits", [X * 30, Q], {}),
    ("binary_cross_entropy_with_logits", [X, Q], {"weight": W, "pos_weight": W}),
    ("kl_div", [np.log(P), Q], {}), ("kl_div", [np.log(P), np.log(Q)], {"log_target": True}),
    ("soft_margin_loss", [X * 30, SIGN], {}), ("hinge_embedding_loss", [X, SIGN], {"margin": 0.5}),
    ("margin_ranking_loss", [X[:, 0], Y[:, 0], SIGN[:, 0]], {"margin": 0.3}),
    ("triplet_margin_loss", [X, Y, P], {"margin": 2.0, "swap": True}), ("triplet_margin_loss", [X, Y, P], {"p": 3.0}),
    ("cosine_embedding_loss", [X, Y, SIGN[:, 0]], {"margin": 0.1}),
    ("multi_margin_loss", [X, CLASSES], {"weight": W, "p": 2}), ("multi_margin_loss", [X, CLASSES], {"margin": 0.4}),
    ("multilabel_soft_margin_loss", [X, (Q > 0.5) * 1.0], {"weight": W}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "arrays", "options"), LOSSES, ids=[f"{c[0]}-{k}" for k, c in enumerate(LOSSES)])
def test_loss(name: str, arrays: list[np.ndarray], options: dict[str, Any], reduction: str) -> None:
    check(name, arrays, {**options, "reduction": reduction})


@pytest.mark.parametrize(("name", "arrays", "options"), [
    ("cosine_similarity", [X, Y], {"dim": 0}), ("pairwise_distance", [X, Y], {"p": 3.0}),
    ("kl_div", [np.log(P), Q], {"reduction": "batchmean"}),
    ("linear", [X, Y], {}), ("bilinear", [X, Y[:, :2], rng.normal(size=(3, 4, 2))], {}),
    ("scaled_dot_product_attention", [rng.normal(size=(2, 3, 4)) for _ in range(3)], {"is_causal": True}),
    ("scaled_dot_product_attention", [rng.normal(size=(2, 3, 4)) for _ in range(3)], {"attn_mask": Q[:3, :3]}),
    ("scaled_dot_product_attention", [rng.normal(size=(2, 3, 4)) for _ in range(3)],
     {"attn_mask": np.array([[True, False, True], [False, False, False], [True, True, True]]), "scale": 0.3}),
    ("group_norm", [rng.normal(size=(2, 6, 3))], {"num_groups": 3}),
    ("batch_norm", [X], {"running_mean": None, "running_var": None, "training": True}),
])
def test_function(name: str, arrays: list[np.ndarray], options: dict[str, Any]) -> None:
    check(name, arrays, options)


def test_a_tensor_of_torch_keeps_its_element_type() -> None:
    wide = torch.full((1, 2), 0.1, dtype=torch.float64)
    assert tn.tensor(wide).dtype is tn.float64
    assert tn.tensor(wide[0, 0]).dtype is tn.float64
    layer = tn.nn.Linear(2, 1, bias=False).to(tn.float64)
    layer.load_state_dict({"weight": wide})
    np.testing.assert_array_equal(layer.weight.numpy(), wide.numpy())
    narrow = torch.tensor([1.5, 2.0], dtype=torch.bfloat16)
    copied, shared = tn.tensor(narrow), tn.asarray(narrow)
    narrow[0] = 3
    assert copied.dtype is tn.bfloat16
    assert (copied.tolist(), shared.tolist()) == ([1.5, 2], [3, 2])


def test_a_tensor_of_torch_as_an_operand_is_refused_with_what_to_write() -> None:
    x, theirs = tn.ones(2), torch.ones(2)
    for call in (lambda: x + theirs, lambda: theirs * x, lambda: tn.stack([x, theirs]), lambda: tn.nn.Linear(2, 1)(theirs)):
        with pytest.raises(tn.errors.DTypeError, match=r"(?s)not torch.Tensor.*hint: tn.asarray\(x\)"):
            call()


def test_numbers_that_are_kept_as_whole_ones() -> None:
    start = np.array([[-1.0, -0.04, 0.05], [25.3, 30.0, 0.15], [np.nan, 300.0, -300.0]], np.float32)
    for name, ours, theirs in (("tensor", (0.1, 3, 0, 255), (0.1, 3, 0, 255)), ("channel", *(
            (lib.tensor([0.1, 0.2, 0.3]), lib.tensor([0, 1, 2], dtype=lib.int32), 1, 0, 255) for lib in (tn, torch)))):
        x, y = tn.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
        found = getattr(tn, f"fake_quantize_per_{name}_affine")(x, *ours)
        wanted = getattr(torch, f"fake_quantize_per_{name}_affine")(y, *theirs)
        found.sum().backward()
        wanted.sum().backward()
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
        np.testing.assert_array_equal(x.grad.numpy(), y.grad.numpy())
