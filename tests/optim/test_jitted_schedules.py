"""Schedules that are stepped within a jitted training step: the rates of eager code, and few captures."""

import pytest

import tenon as tn
from tenon import nn, optim
from tenon.observe import subscribe

SCHEDULES = {
    "OneCycleLR": lambda o: optim.OneCycleLR(o, 0.3, total_steps=40),
    "CyclicLR": lambda o: optim.CyclicLR(o, 0.1, 0.3, step_size_up=4),
    "CosineAnnealingWarmRestarts": lambda o: optim.CosineAnnealingWarmRestarts(o, 3, 2),
    "MultiplicativeLR": lambda o: optim.MultiplicativeLR(o, lambda step: 0.95),
    "SequentialLR": lambda o: optim.SequentialLR(
        o, [optim.LinearLR(o, total_iters=4), optim.ExponentialLR(o, 0.9)], milestones=[4]),
    "ChainedScheduler": lambda o: optim.ChainedScheduler([optim.MultiplicativeLR(o, lambda step: 0.9),
                                                          optim.LinearLR(o, total_iters=5)]),
    "CosineAnnealingLR": lambda o: optim.CosineAnnealingLR(o, 10),
    "LambdaLR": lambda o: optim.LambdaLR(o, lambda step: 0.9 ** step),
    "MultiStepLR": lambda o: optim.MultiStepLR(o, [3, 9, 10]),
    "WarmupCosineLR": lambda o: optim.WarmupCosineLR(o, 5, 40),
    "PolynomialLR": lambda o: optim.PolynomialLR(o, 12, power=2.0),
    "ExponentialLR": lambda o: optim.ExponentialLR(o, 0.9),
    "StepLR": lambda o: optim.StepLR(o, 4),
}


def run(make, decorate, steps=30):
    tn.manual_seed(0)
    net = nn.Linear(3, 1)
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule = make(optimizer)

    def step(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss
    step, told = decorate(step), []
    for _ in range(steps):
        step(tn.ones(4, 3))
        told += [optimizer.param_groups[0]["lr"].item(), *schedule.get_last_lr()]
    return told


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_eager_code(name):
    captured = []
    stop = subscribe(lambda event: captured.append(event) if event.name == "capture" else None)
    try:
        jitted = run(SCHEDULES[name], tn.jit)
    finally:
        stop()
    assert jitted == pytest.approx(run(SCHEDULES[name], lambda step: step), rel=1e-6)
    assert 0 < len(captured) <= 8, len(captured)
