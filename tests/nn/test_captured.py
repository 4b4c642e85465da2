"""Layers, losses and optimizers inside `tn.jit`: what they compute and change is what they do without it.

Every step runs with two batch sizes, so that the second capture has a symbolic one.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2), nn.LogSoftmax(1)), (2, 3)),
    "activations": (lambda: nn.Sequential(nn.SiLU(), nn.ELU(), nn.Softplus(), nn.PReLU(), nn.Mish()), (4,)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), (2, 4, 6)),
    "conv_transpose": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1), (2, 5)),
    "pooling": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(2, 3, 1), nn.AdaptiveAvgPool2d(1)), (2, 4, 6)),
    "batch_norm": (lambda: nn.BatchNorm1d(4), (4,)),
    "batch_norm_average": (lambda: nn.BatchNorm2d(3, momentum=None), (3, 2, 2)),
    "layer_norm": (lambda: nn.LayerNorm(4), (3, 4)),
    "rms_norm": (lambda: nn.RMSNorm((3, 4)), (3, 4)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (4, 3)),
    "instance_norm": (lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True), (4, 3)),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 9), nn.Dropout(), nn.AlphaDropout(0.2), nn.Dropout1d()), (3, 4)),
    "attention": (lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.1, batch_first=True), (5, 6)),
    "gru": (lambda: Last(nn.GRU(3, 4, batch_first=True)), (2, 3)),
    "upsample": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Upsample((6, 5), mode="bilinear"), nn.PixelShuffle(2)),
                 (4, 3, 3)),
    "padding": (lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular")),
                (2, 3, 4)),
}


class Last(nn.Module):
    """A recurrent layer's outputs alone."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner

    def __call__(self, x: Any) -> Any:
        return self.inner(x)[0]


@pytest.mark.parametrize("name", LAYERS)
def test_a_training_step(name: str) -> None:
    make, shape = LAYERS[name]
    tn.manual_seed(0)
    one = make()
    two = copy.deepcopy(one)
    results = []
    for net, wrap in ((one, lambda f: f), (two, lambda f: tn.jit(f, fullgraph=True))):
        opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        results.append(run_steps(net, opt, shape, wrap))
    for eager, compiled in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=2e-4, atol=2e-5)
    for (key, x), y in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=2e-3, atol=2e-4, err_msg=key)


def run_steps(net: Any, opt: optim.Optimizer, shape: tuple[int, ...], wrap: Callable[..., Any]) -> list[Any]:
    def step(x: Any) -> Any:
        opt.zero_grad()
        y = net(x)
        loss = (y * y + y).mean()
        loss.backward()
        opt.step()
        return loss, y

    rng = np.random.default_rng(0)
    stepped = wrap(step)
    tn.manual_seed(1)
    out = [x.numpy() for n in (3, 5, 4) for x in stepped(tn.tensor(rng.normal(size=(n, *shape)).astype(np.float32)))]
    net.eval()
    use = wrap(lambda x: net(x))
    return [*out, use(tn.tensor(rng.normal(size=(3, *shape)).astype(np.float32))).numpy()]


def test_embedding_with_cross_entropy_and_adam() -> None:
    tn.manual_seed(0)
    one = nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 7))
    two = copy.deepcopy(one)
    losses = []
    for net, wrap in ((one, lambda f: f), (two, lambda f: tn.jit(f, fullgraph=True))):
        opt = optim.AdamW(net.parameters(), lr=0.01)

        def step(x: Any, y: Any, net: Any = net, opt: Any = opt) -> Any:
            loss = nn.cross_entropy(net(x).reshape(-1, 7), y.reshape(-1), ignore_index=0, label_smoothing=0.1)
            loss.backward()
            optim.clip_grad_norm(net.parameters(), 0.5)
            opt.step()
            opt.zero_grad()
            return loss

        stepped, rng = wrap(step), np.random.default_rng(0)
        tokens = [tn.tensor(rng.integers(0, 7, (n, 6))) for n in (3, 5, 4)]
        losses.append([stepped(t[:, :-1], t[:, 1:]).item() for t in tokens])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(two[0].weight.numpy(), one[0].weight.numpy(), rtol=1e-4, atol=1e-5)


def test_a_learning_rate_is_state_and_changes_nothing_else() -> None:
    p = nn.Parameter([1.0, 2.0])
    opt = optim.SGD([p], lr=0.1)
    schedule = optim.StepLR(opt, 1, 0.5)

    @tn.jit(fullgraph=True)
    def step() -> Any:
        (p * 1.0).sum().backward()
        opt.step()
        opt.zero_grad()

    moved = []
    for _ in range(3):
        before = p.tolist()[0]
        step()
        moved.append(before - p.tolist()[0])
        schedule.step()
    np.testing.assert_allclose(moved, [0.1, 0.05, 0.025], rtol=1e-5)
    assert sum(len(record.captures) for record in step.records.values()) == 1


def test_train_and_eval_are_seen() -> None:
    net = nn.Sequential(nn.Dropout(0.5))
    f = tn.jit(lambda x: net(x), fullgraph=True)
    x = tn.ones(100)
    assert 0 in f(x).tolist()
    net.eval()
    assert 0 not in f(x).tolist()
    net.train()
    assert f(x).tolist() != f(x).tolist()
