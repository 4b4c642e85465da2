"""`optim.swa_utils.AveragedModel` as PyTorch has it, eager and in a jitted training step."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tenon as tn

torch = pytest.importorskip("torch")


def train(lib: ModuleType, ema: bool, buffers: bool, decorate: Any = lambda f: f) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 1))
    net.load_state_dict({**net.state_dict(), **{name: lib.tensor(rng.standard_normal(p.shape).astype("f4"))
                                                for name, p in net.named_parameters()}})
    if lib is torch:
        from torch.optim import swa_utils
    else:
        swa_utils = tn.optim.swa_utils
    averaged = swa_utils.AveragedModel(net, avg_fn=swa_utils.get_ema_avg_fn(0.8) if ema else None, use_buffers=buffers)
    optimizer = lib.optim.SGD(net.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
        averaged.update_parameters(net)
    step = decorate(step)
    for _ in range(6):
        step(*(lib.tensor(rng.standard_normal(shape).astype("f4")) for shape in ((5, 3), (5, 1))))
    averaged.eval()
    x = lib.tensor(rng.standard_normal((2, 3)).astype("f4"))
    return [averaged(x).detach().numpy(), *(v.detach().numpy() for _, v in sorted(averaged.state_dict().items()))]


def test_schedule_batch_norms_and_averages_of_lists():
    found = []
    for lib in (torch, tn):
        from torch.optim import swa_utils as theirs
        utils, rng = (theirs if lib is torch else tn.optim.swa_utils), np.random.default_rng(0)
        net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 1))
        net.load_state_dict({**net.state_dict(), **{name: lib.tensor(rng.standard_normal(p.shape).astype("f4"))
                                                    for name, p in net.named_parameters()}})
        optimizer = lib.optim.SGD(net.parameters(), lr=0.1)
        many = [utils.AveragedModel(net, multi_avg_fn=f) for f in (utils.get_ema_multi_avg_fn(0.8), utils.get_swa_multi_avg_fn())]
        optimizer.step()
        rates = []
        for kind, epochs in (("linear", 3), ("cos", 2), ("cos", 0)):
            schedule = utils.SWALR(optimizer, 0.5, epochs, kind)
            for k in range(5):
                optimizer.step()
                if k == 1:      # somebody else may change it
                    optimizer.param_groups[0]["lr"] = 0.03
                schedule.step()
                rates.append(float(optimizer.param_groups[0]["lr"]))
        batches = [(lib.tensor(rng.standard_normal((5, 3)).astype("f4")),) for _ in range(3)]
        for x, in batches:
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            optimizer.step()
            for averaged in many:
                averaged.update_parameters(net)
        utils.update_bn(batches, many[0])
        found.append([rates, *(v.detach().numpy() for averaged in many for _, v in sorted(averaged.state_dict().items()))])
    for wanted, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("ema", [False, True])
@pytest.mark.parametrize("buffers", [False, True])
def test_averages_are_as_in_pytorch(ema, buffers):
    expected = train(torch, ema, buffers)
    for decorate in (lambda f: f, tn.jit):
        for ours, theirs in zip(train(tn, ema, buffers, decorate), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
