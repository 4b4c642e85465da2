"""Layers against PyTorch's with the same weights: results, gradients of input and parameters, names and shapes."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn

torch = pytest.importorskip("torch")


def both(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The layer here and there, with one set of weights, in float64."""
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options).double()
    generator = torch.Generator().manual_seed(0)
    for p in [*theirs.parameters(), *theirs.buffers()]:
        if p.dtype.is_floating_point:
            p.data.copy_(torch.rand(p.shape, generator=generator, dtype=torch.float64) + 0.1)
    state = {key: value.numpy().copy() for key, value in theirs.state_dict().items()}
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in state.items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    return ours, theirs


def compare(ours: Any, theirs: Any, *shapes: Any, call: dict[str, Any] | None = None) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 4, s[1:]) if s[0] == "i" else rng.normal(size=s) for s in shapes]
    mine = [tn.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    others = [torch.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    outputs = flat(ours(*mine, **(call or {})))
    expected = flat(theirs(*others, **{k: torch.tensor(v.numpy()) if isinstance(v, tn.Tensor) else v
                                       for k, v in (call or {}).items()}))
    assert len(outputs) == len(expected)
    total, other_total = 0.0, 0.0
    for y, z in zip(outputs, expected):
        np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-9)
        weight = rng.normal(size=z.shape)
        if z.dtype.is_floating_point and z.requires_grad:
            total, other_total = total + (y * weight).sum(), other_total + (z * torch.tensor(weight)).sum()
    if not isinstance(other_total, float):
        total.backward()
        other_total.backward()
        for x, z in zip(mine, others):
            if z.grad is not None:
                np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-8, atol=1e-8)
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-8, atol=1e-8, err_msg=name)
    for (name, p), q in zip(ours.named_buffers(), theirs.buffers()):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def flat(out: Any) -> list[Any]:
    return [x for part in out for x in flat(part)] if isinstance(out, (tuple, list)) else [] if out is None else [out]


LAYERS = [
    ("Linear", (3, 4), {}, [(2, 3)]), ("Linear", (3, 4), {"bias": False}, [(2, 5, 3)]),
    ("Bilinear", (3, 4, 5), {}, [(2, 3), (2, 4)]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 4, 9)]),
    ("Conv2d", (3, 4, (3, 2)), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}, [(2, 3, 7, 8)]),
    ("Conv2d", (2, 4, 3), {"padding": "same", "bias": False}, [(2, 2, 5, 6)]),
    ("Conv2d", (2, 4, 3), {"padding": 1, "padding_mode": "reflect"}, [(2, 2, 5, 6)]),
    ("Conv2d", (2, 4, 3), {"padding": (2, 1), "padding_mode": "circular"}, [(2, 2, 5, 6)]),
    ("Conv2d", (2, 4, 3), {"padding": 1, "padding_mode": "replicate"}, [(2, 5, 6)]),
    ("Conv3d", (2, 3, 2), {}, [(1, 2, 3, 4, 5)]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}, [(2, 4, 5)]),
    ("ConvTranspose2d", (3, 4, 3), {"stride": 2, "dilation": 2}, [(2, 3, 4, 5)]),
    ("ConvTranspose3d", (2, 3, 2), {}, [(1, 2, 2, 3, 2)]),
    ("BatchNorm1d", (3,), {}, [(5, 3)]), ("BatchNorm1d", (3,), {"momentum": None}, [(2, 3, 4)]),
    ("BatchNorm2d", (3,), {"affine": False}, [(2, 3, 4, 5)]),
    ("BatchNorm3d", (2,), {"track_running_stats": False}, [(2, 2, 2, 3, 2)]),
    ("LayerNorm", (5,), {}, [(2, 3, 5)]), ("LayerNorm", ((3, 5),), {"bias": False}, [(2, 3, 5)]),
    ("RMSNorm", (5,), {}, [(2, 3, 5)]), ("GroupNorm", (2, 6), {}, [(2, 6, 3)]),
    ("InstanceNorm1d", (3,), {"affine": True}, [(2, 3, 5)]),
    ("InstanceNorm2d", (3,), {"track_running_stats": True}, [(2, 3, 4, 5)]),
    ("LocalResponseNorm", (3,), {"alpha": 0.1}, [(2, 5, 4)]),
    ("Embedding", (4, 3), {"padding_idx": 1}, [("i", 2, 5)]),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, [(2, 3, 8)]),
    ("MaxPool2d", (2,), {"ceil_mode": True, "return_indices": True}, [(2, 3, 5, 7)]),
    ("MaxPool3d", (2,), {}, [(1, 2, 4, 4, 4)]), ("AvgPool1d", (3,), {"stride": 2}, [(2, 3, 8)]),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, [(2, 3, 5, 7)]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [(2, 3, 7, 5)]), ("AdaptiveMaxPool1d", (3,), {}, [(2, 3, 8)]),
    ("LPPool2d", (2, 3), {}, [(2, 3, 6, 6)]),
    ("Flatten", (), {}, [(2, 3, 4)]), ("Flatten", (0, 1), {}, [(2, 3, 4)]), ("Unflatten", (1, (2, -1)), {}, [(3, 6)]),
    ("PixelShuffle", (2,), {}, [(2, 8, 3, 4)]), ("PixelUnshuffle", (2,), {}, [(2, 3, 4, 6)]),
    ("ChannelShuffle", (2,), {}, [(2, 6, 3)]),
    ("Upsample", (), {"scale_factor": 2}, [(2, 3, 4)]), ("Upsample", ((7, 3),), {}, [(2, 3, 4, 5)]),
    ("Upsample", ((7, 3),), {"mode": "bilinear"}, [(2, 3, 4, 5)]),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "linear", "align_corners": True}, [(2, 3, 5)]),
    ("Upsample", (), {"scale_factor": (2.5, 0.5), "mode": "bicubic"}, [(1, 2, 4, 6)]),
    ("Upsample", (), {"scale_factor": 2, "mode": "trilinear"}, [(1, 2, 2, 3, 2)]),
    ("ZeroPad2d", ((1, 2, 0, 1),), {}, [(2, 3, 4, 5)]), ("ConstantPad1d", (2, 3.5), {}, [(2, 3, 4)]),
    ("ReflectionPad2d", (1,), {}, [(2, 3, 4, 5)]), ("ReplicationPad1d", ((1, 2),), {}, [(2, 3, 4)]),
    ("CircularPad2d", (1,), {}, [(2, 3, 4, 5)]),
    ("Unfold", (2,), {"stride": 2}, [(2, 3, 4, 6)]), ("Fold", ((4, 6), 2), {"stride": 2}, [(2, 12, 6)]),
    ("PReLU", (3,), {}, [(2, 3, 4)]), ("Dropout", (0.0,), {}, [(2, 3)]), ("Dropout2d", (0.0,), {}, [(2, 3, 2, 2)]),
    ("RNN", (3, 4, 2), {"nonlinearity": "relu"}, [(5, 2, 3)]), ("RNN", (3, 4), {"bias": False}, [(5, 3)]),
    ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True, "batch_first": True}, [(2, 5, 3)]),
    ("GRU", (3, 4, 2), {"bidirectional": True}, [(5, 2, 3), (4, 2, 4)]), ("GRU", (3, 4), {}, [(1, 2, 3)]),
    ("RNNCell", (3, 4), {}, [(2, 3), (2, 4)]), ("LSTMCell", (3, 4), {}, [(2, 3)]), ("GRUCell", (3, 4), {}, [(3,)]),
    ("MultiheadAttention", (6, 2), {"batch_first": True}, [(2, 3, 6), (2, 4, 6), (2, 4, 6)]),
    ("LSTM", (3, 4), {"proj_size": 2, "num_layers": 2, "bidirectional": True}, [(5, 2, 3)]),
    ("MultiheadAttention", (6, 2), {"add_bias_kv": True, "add_zero_attn": True}, [(3, 2, 6), (4, 2, 6), (4, 2, 6)]),
    ("MultiheadAttention", (6, 3), {"kdim": 4, "vdim": 5}, [(3, 2, 6), (4, 2, 4), (4, 2, 5)]),
    ("MultiheadAttention", (6, 2), {"bias": False}, [(3, 6), (4, 6), (4, 6)]),
    ("TransformerEncoderLayer", (6, 2, 8, 0.0), {"batch_first": True}, [(2, 3, 6)]),
    ("TransformerEncoderLayer", (6, 2, 8, 0.0), {"norm_first": True, "activation": "gelu"}, [(3, 2, 6)]),
    ("TransformerDecoderLayer", (6, 2, 8, 0.0), {"batch_first": True}, [(2, 3, 6), (2, 4, 6)]),
    ("Transformer", (6, 2, 2, 2, 8, 0.0), {"batch_first": True}, [(2, 3, 6), (2, 4, 6)]),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "args", "options", "shapes"), LAYERS,
                         ids=[f"{c[0]}-{k}" for k, c in enumerate(LAYERS)])
def test_layer(name: str, args: Any, options: Any, shapes: Any) -> None:
    ours, theirs = both(name, *args, **options)
    compare(ours, theirs, *shapes)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        p.grad = q.grad = None
    compare(ours.eval(), theirs.eval(), *shapes)


def test_tensors_in_a_list_or_dictionary_of_parameters_become_parameters() -> None:
    for lib, library in ((tn, nn), (torch, torch.nn)):
        listed, named = library.ParameterList([lib.ones(2)]), library.ParameterDict({"a": lib.ones(3)})
        listed.append(lib.zeros(1))
        assert [tuple(p.shape) for p in (*listed.parameters(), *named.parameters())] == [(2,), (1,), (3,)]
        assert all(isinstance(p, library.Parameter) and p.requires_grad for p in (*listed, *named.values()))


NOT_HERE = {"activation_relu_or_gelu", "enable_nested_tensor", "mask_check", "mode", "name", "norm", "sparse",
            "use_nested_tensor"}        # how PyTorch goes about it
LOSSES = [("CrossEntropyLoss", (), {"label_smoothing": 0.1}), ("BCEWithLogitsLoss", (), {"reduction": "sum"}),
          ("MSELoss", (), {}), ("CTCLoss", (1,), {}), ("TripletMarginLoss", (2.0,), {"swap": True}),
          ("CosineSimilarity", (0,), {}), ("PairwiseDistance", (1.0,), {"keepdim": True}),
          ("KLDivLoss", (), {"log_target": True}), ("GaussianNLLLoss", (), {}), ("SmoothL1Loss", (), {"beta": 0.5}),
          ("Softmax", (1,), {}), ("GLU", (), {})]


@pytest.mark.parametrize(("name", "args", "options"), [case[:3] for case in LAYERS] + LOSSES)
def test_what_a_layer_was_made_with_stands_in_its_attributes(name: str, args: Any, options: Any) -> None:
    ours, theirs = both(name, *args, **options)
    for (prefix, layer), (_, wanted) in zip(ours.named_modules(), theirs.named_modules(), strict=True):
        for key, value in vars(wanted).items():
            if not key.startswith("_") and key not in NOT_HERE and isinstance(value, (bool, int, float, str, tuple)):
                found = getattr(layer, key)
                assert found == value or (found,) == value, (prefix, key)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "args", "options"), [case[:3] for case in LAYERS])
def test_layers_of_the_same_kinds_start_anew(name: str, args: Any, options: Any) -> None:
    ours, theirs = both(name, *args, **options)
    assert [hasattr(x, "reset_parameters") for x in ours.modules()] == \
        [hasattr(x, "reset_parameters") for x in theirs.modules()]
    for layer in ours.modules():
        if hasattr(layer, "reset_parameters"):
            for x in (*layer.parameters(recurse=False), *layer.buffers(recurse=False)):
                x.data.fill_(7)
            layer.reset_parameters()
            assert not any((x == 7).any() for x in (*layer.parameters(recurse=False), *layer.buffers(recurse=False)))


def test_weights_of_recurrent_layers_are_listed_by_layers() -> None:
    ours, theirs = both("LSTM", 3, 4, num_layers=2, bidirectional=True, proj_size=2)
    assert [[tuple(p.shape) for p in ps] for ps in ours.all_weights] == \
        [[tuple(p.shape) for p in ps] for ps in theirs.all_weights]
    modules = [name for name, _ in tn.nn.Sequential(ours, ours).named_modules(remove_duplicate=False)]
    assert modules == [name for name, _ in torch.nn.Sequential(theirs, theirs).named_modules(remove_duplicate=False)]
