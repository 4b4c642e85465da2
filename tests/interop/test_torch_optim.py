"""Optimizers, schedules and clipping against PyTorch's, step by step in float64."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

torch = pytest.importorskip("torch")

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}), ("AdamW", {"lr": 0.1, "weight_decay": 0.2}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}), ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "betas": (0.9, 0.9), "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.1, "betas": (0.5, 0.6), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RMSprop", {"lr": 0.1}), ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.05}), ("Rprop", {"lr": 0.3, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.4)}),
    ("ASGD", {"lr": 0.1, "weight_decay": 0.1}), ("ASGD", {"lr": 0.2, "lambd": 0.1, "alpha": 0.9, "t0": 1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.1}), ("Adafactor", {"lr": 0.5, "beta2_decay": -0.5, "weight_decay": 0.1, "eps": (1e-3, 0.1), "d": 1.5}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizer(name: str, options: dict[str, Any]) -> None:
    start = np.random.default_rng(0).normal(size=(3, 2))
    p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    ours, theirs = getattr(optim, name)([p], **options), getattr(torch.optim, name)([q], **options)
    for k in range(6):
        for x, opt in ((p, ours), (q, theirs)):
            opt.zero_grad()
            (x * x * x + x * (k + 1)).sum().backward()
            opt.step()
        narrow = name in ("NAdam", "ASGD")      # theirs keep the product of momenta, or the step, in float32
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-6 if narrow else 1e-9, atol=1e-8 if narrow else 0)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("name", "options"), [case for case in OPTIMIZERS if case[0] != "Adafactor"])
def test_complex_parameters(name: str, options: dict[str, Any], jitted: bool) -> None:
    random = np.random.default_rng(0)
    start = random.normal(size=(3, 2)) + 1j * random.normal(size=(3, 2))
    p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    ours, theirs = getattr(optim, name)([p], **options), getattr(torch.optim, name)([q], **options)

    def step(x: Any, opt: Any) -> None:
        opt.zero_grad()
        ((x * x * (1 + 2j)).abs().sum() + (x.real ** 3).sum()).backward()
        opt.step()
    for _ in range(4):
        step(q, theirs)
        (tn.jit(step) if jitted else step)(p, ours)
    np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-6 if name in ("NAdam", "ASGD") else 1e-9)


def complex_pair() -> tuple[Any, Any]:
    start = np.array([0.5 - 1j, 1 + 2j, -0.3 + 0.7j])
    return nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_of_a_complex_parameter_moves_its_parts(search: Any) -> None:
    p, q = complex_pair()
    for x, library in ((p, optim), (q, torch.optim)):
        opt = library.LBFGS([x], lr=0.5, max_iter=4, line_search_fn=search)

        def loss(x: Any = x, opt: Any = opt) -> Any:
            opt.zero_grad()
            found = ((x - (1 + 2j)).abs() ** 2).sum() + (x.real ** 4).sum()
            found.backward()
            return found
        opt.step(loss)
        opt.step(loss)
    np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_the_norm_of_complex_gradients_is_real(norm: float) -> None:
    p, q = complex_pair()
    for x, library in ((p, nn), (q, torch.nn)):
        ((x * (3 + 4j)).abs() ** 2).sum().backward()
        library.utils.clip_grad_norm_([x], 1.0, norm_type=norm)
    np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6)


def test_adafactor_refuses_complex_parameters_as_pytorch_does() -> None:
    with pytest.raises(tn.errors.ArgumentError, match="complex"):
        optim.Adafactor([nn.Parameter(np.ones((2, 2), np.complex64))])


@pytest.mark.parametrize("name", sorted({name for name, _ in OPTIMIZERS}))
def test_a_rate_that_a_schedule_changes(name: str) -> None:
    start = np.random.default_rng(0).normal(size=(3, 2))
    p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    ours, theirs = getattr(optim, name)([p], lr=0.1), getattr(torch.optim, name)([q], lr=0.1)
    schedules = [x.LinearLR(opt, 0.5, total_iters=3) for x, opt in
                 ((optim.lr_scheduler, ours), (torch.optim.lr_scheduler, theirs))]
    for _ in range(4):
        for x, opt, schedule in zip((p, q), (ours, theirs), schedules, strict=True):
            opt.zero_grad()
            (x * x * x + x).sum().backward()
            opt.step()
            schedule.step()
    np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)])
def test_adafactor_of_other_shapes(shape: tuple[int, ...]) -> None:
    start = np.random.default_rng(0).normal(size=shape)
    p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    ours, theirs = optim.Adafactor([p], lr=0.2, maximize=True), torch.optim.Adafactor([q], lr=0.2, maximize=True)
    for k in range(3):
        for x, opt in ((p, ours), (q, theirs)):
            opt.zero_grad()
            (x * x * x + x * (k + 1)).sum().backward()
            opt.step()
    np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-6)     # theirs count steps in float32


@pytest.mark.parametrize("options", [{}, {"nesterov": False, "momentum": 0.5}, {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}])
def test_muon(options: dict[str, Any]) -> None:
    """The iteration is in bfloat16, where a product of theirs may be rounded otherwise."""
    for shape in ((6, 4), (4, 6), (5, 5)):
        start = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
        ours, theirs = optim.Muon([p], lr=0.1, **options), torch.optim.Muon([q], lr=0.1, **options)
        for k in range(3):
            for x, opt in ((p, ours), (q, theirs)):
                opt.zero_grad()
                (x * x * x + x * (k + 1)).sum().backward()
                opt.step()
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), atol=2e-3)
    with pytest.raises(tn.errors.ArgumentError, match=r"matrices .* not f32\[3\]"):
        optim.Muon([nn.Parameter(np.ones(3, np.float32))])


def test_new_optimizers_are_captured_and_go_on_from_a_state() -> None:
    for kind in (optim.Adafactor, optim.Muon):
        results = []
        for saved in (False, True):
            w = nn.Parameter(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
            opt = kind([w], lr=0.1)

            @tn.jit
            def step(w: Any = w, opt: Any = opt) -> None:
                (w * w * w).sum().backward()
                opt.step()
                opt.zero_grad()
            step()
            if saved:
                state, opt = opt.state_dict(), kind([w], lr=0.3)
                opt.load_state_dict(state)
            step(w, opt)
            results.append(w.numpy().copy())
        np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


SCHEDULES = [
    ("StepLR", {"step_size": 3}), ("MultiStepLR", {"milestones": [2, 5]}), ("ExponentialLR", {"gamma": 0.9}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 3}), ("LinearLR", {"total_iters": 4}),
    ("PolynomialLR", {"total_iters": 6, "power": 2.0}), ("CosineAnnealingLR", {"T_max": 8, "eta_min": 0.01}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 12}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 12, "anneal_strategy": "linear", "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 1.0, "epochs": 3, "steps_per_epoch": 5, "three_phase": True, "base_momentum": 0.5}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 3, "step_size_down": 2, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 2, "mode": "exp_range", "gamma": 0.9}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 2, "scale_fn": lambda k: 1 / k, "base_momentum": 0.1}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3}), ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("MultiplicativeLR", {"lr_lambda": lambda k: 1 - 1 / (k + 2)}),
    ("LambdaLR", {"lr_lambda": lambda k: 1 / (k + 1)}), ("LambdaLR", {"lr_lambda": [lambda k: 1 / (k + 1)]}),
    ("MultiplicativeLR", {"lr_lambda": [lambda k: 1 / (k + 1)]}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedule(name: str, options: dict[str, Any]) -> None:
    p, q = nn.Parameter(np.ones(1)), torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    for optimizer in ("SGD", "Adam"):
        ours, theirs = getattr(optim, optimizer)([p], lr=0.1), getattr(torch.optim, optimizer)([q], lr=0.1)
        mine, other = getattr(optim.lr_scheduler, name)(ours, **options), getattr(torch.optim.lr_scheduler, name)(theirs, **options)
        for _ in range(10):
            np.testing.assert_allclose(float(ours.lr), theirs.param_groups[0]["lr"], rtol=1e-9)
            np.testing.assert_allclose(mine.get_last_lr(), other.get_last_lr(), rtol=1e-9)
            for x, opt, schedule in ((p, ours, mine), (q, theirs, other)):
                opt.zero_grad()
                (x * x).sum().backward()
                opt.step()
                schedule.step()
            np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-7)


def test_schedules_act_together() -> None:
    ours = optim.SGD([nn.Parameter([1.0])], lr=0.1)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler
    other = scheduler.ChainedScheduler([scheduler.ConstantLR(theirs, 0.1, 3), scheduler.ExponentialLR(theirs, 0.9)])
    mine = optim.ChainedScheduler([optim.ConstantLR(ours, 0.1, 3), optim.ExponentialLR(ours, 0.9)])
    for k in range(6):
        np.testing.assert_allclose(float(ours.lr), theirs.param_groups[0]["lr"], rtol=1e-9)
        if k == 2:                      # what the user sets is scaled, not replaced
            for optimizer in (ours, theirs):
                optimizer.param_groups[0]["lr"] *= 0.5
        mine.step()
        theirs.step()
        other.step()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options"), [x for x in SCHEDULES if x[0] not in ("OneCycleLR", "CyclicLR")])
def test_schedules_step_back_to_back_and_keep_what_the_user_sets(name: str, options: dict[str, Any]) -> None:
    rates = []
    for lib in (tn, torch):
        optimizer = lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=0.1)
        S, found = lib.optim.lr_scheduler, []
        schedules = [S.LinearLR(optimizer, 0.1, total_iters=3), getattr(S, name)(optimizer, **options), S.ExponentialLR(optimizer, 0.9)]
        for k in range(12):
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if k == 4:
                optimizer.param_groups[0]["lr"] = 0.05
            for schedule in schedules:
                schedule.step()
        state = [schedule.state_dict() for schedule in schedules]
        for schedule, kept in zip(schedules, state, strict=True):
            schedule.load_state_dict(kept)
        rates.append([*found, float(optimizer.param_groups[0]["lr"])])
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-9)


def test_a_cycle_of_momenta_is_one_capture() -> None:
    """And needs an optimizer that has one."""
    w = nn.Parameter(np.ones(3))
    opt = optim.SGD([w], lr=0.1, momentum=0.9)
    schedule = optim.OneCycleLR(opt, max_lr=0.1, total_steps=40)

    @tn.jit
    def step() -> Any:
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        opt.step()
        return loss
    for _ in range(30):
        step()
        schedule.step()
    assert "capture 4" not in str(tn.explain(step))
    with pytest.raises(tn.errors.ArgumentError, match="Adagrad has no momentum to change"):
        optim.CyclicLR(optim.Adagrad([w], lr=0.1), 0.1, 1.0)


@pytest.mark.filterwarnings("ignore")
def test_schedules_one_after_another() -> None:
    ours = optim.SGD([nn.Parameter([1.0])], lr=0.1)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler
    mine = optim.SequentialLR(ours, [optim.LinearLR(ours, 0.1, 1.0, 3), optim.ExponentialLR(ours, 0.8)], [3])
    other = scheduler.SequentialLR(
        theirs, [scheduler.LinearLR(theirs, 0.1, 1.0, 3), scheduler.ExponentialLR(theirs, 0.8)], [3])
    for _ in range(8):
        np.testing.assert_allclose(float(ours.lr), theirs.param_groups[0]["lr"], rtol=1e-9)
        mine.step()
        other.step()


@pytest.mark.parametrize("options", [{"patience": 1}, {"mode": "max", "patience": 0, "cooldown": 1, "min_lr": 0.02}])
def test_plateau(options: dict[str, Any]) -> None:
    ours = optim.SGD([nn.Parameter([1.0])], lr=0.1)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    mine = optim.ReduceLROnPlateau(ours, factor=0.5, **options)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, factor=0.5, **options)
    for metric in (3.0, 2.0, 2.0, 2.5, 2.1, 1.0, 1.0, 1.0, 1.0, 1.5):
        mine.step(metric)
        other.step(metric)
        np.testing.assert_allclose(float(ours.lr), theirs.param_groups[0]["lr"], rtol=1e-9)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_clip_grad_norm(norm_type: float, most: float) -> None:
    rng = np.random.default_rng(0)
    ours = [nn.Parameter(np.zeros(s)) for s in ((3, 2), (4,))]
    theirs = [torch.nn.Parameter(torch.zeros(p.shape, dtype=torch.float64)) for p in ours]
    for p, q in zip(ours, theirs):
        g = rng.normal(size=p.shape)
        p.grad, q.grad = tn.tensor(g), torch.tensor(g)
    before = optim.clip_grad_norm(ours, most, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, norm_type)
    np.testing.assert_allclose(before.item(), expected.item(), rtol=1e-12)
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-9)
    optim.clip_grad_value(ours, 0.05)
    assert max(float(abs(p.grad).max()) for p in ours) <= 0.05


@pytest.mark.parametrize("options", [
    {}, {"line_search_fn": "strong_wolfe"}, {"lr": 0.5, "max_iter": 4, "history_size": 3}, {"lr": 1e-3},
    {"line_search_fn": "strong_wolfe", "max_iter": 3, "lr": 10.0}, {"line_search_fn": "strong_wolfe", "lr": 1e-3}])
def test_lbfgs_on_a_curved_valley(options: dict[str, Any]) -> None:
    start = np.array([[-1.2, 1.0], [0.5, -0.5]])
    p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    ours, theirs = optim.LBFGS([p], **options), torch.optim.LBFGS([q], **options)

    def closure(x: Any, opt: Any) -> Any:
        def evaluate() -> Any:
            opt.zero_grad()
            loss = ((1 - x[:, 0]) ** 2 + 10 * (x[:, 1] - x[:, 0] ** 2) ** 2).sum()
            loss.backward()
            return loss
        return evaluate
    for _ in range(4):
        found, wanted = ours.step(closure(p, ours)), theirs.step(closure(q, theirs))
        if not np.isfinite(wanted.item()):
            assert not np.isfinite(found.item())
            break
        np.testing.assert_allclose(found.item(), wanted.item(), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-8)
