"""Optimizers: each step against the formula in NumPy, groups, state, and errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.jit import jit
from tenon.ops.creation import zeros
from tenon.tensor import tensor
from tenon.types import DType, float32, float64


def run(make: object, steps: int = 5) -> np.ndarray:
    """The parameter after some steps whose gradients are 2 * p + k."""
    p = nn.Parameter(np.array([1.0, -2.0, 3.0]))
    opt = make([p])
    for k in range(steps):
        opt.zero_grad()
        (p * p + p * k).sum().backward()
        opt.step()
    return p.numpy()


def by_hand(update: object, steps: int = 5) -> np.ndarray:
    p, state = np.array([1.0, -2.0, 3.0]), {}
    for k in range(steps):
        p = update(p, 2 * p + k, k + 1, state)
    return p


def test_sgd_with_momentum_decay_and_nesterov() -> None:
    def update(p: np.ndarray, g: np.ndarray, t: int, state: dict) -> np.ndarray:
        g = g + 0.1 * p
        state["b"] = 0.9 * state.get("b", 0) + g
        return p - 0.01 * (g + 0.9 * state["b"])
    found = run(lambda ps: optim.SGD(ps, lr=0.01, momentum=0.9, weight_decay=0.1, nesterov=True))
    np.testing.assert_allclose(found, by_hand(update), rtol=1e-12)


def test_sgd_dampening_spares_the_first_step() -> None:
    def update(p: np.ndarray, g: np.ndarray, t: int, state: dict) -> np.ndarray:
        state["b"] = g if t == 1 else 0.9 * state["b"] + 0.5 * g
        return p - 0.01 * state["b"]
    np.testing.assert_allclose(run(lambda ps: optim.SGD(ps, lr=0.01, momentum=0.9, dampening=0.5)), by_hand(update),
                               rtol=1e-12)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(decoupled: bool) -> None:
    def update(p: np.ndarray, g: np.ndarray, t: int, state: dict) -> np.ndarray:
        start = p * (1 - 0.1 * 0.2) if decoupled else p
        g = g if decoupled else g + 0.2 * p
        m = state["m"] = 0.8 * state.get("m", 0) + 0.2 * g
        v = state["v"] = 0.95 * state.get("v", 0) + 0.05 * g * g
        return start - 0.1 * (m / (1 - 0.8 ** t)) / (np.sqrt(v / (1 - 0.95 ** t)) + 1e-6)
    kind = optim.AdamW if decoupled else optim.Adam
    found = run(lambda ps: kind(ps, lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2))
    np.testing.assert_allclose(found, by_hand(update), rtol=1e-10)


def test_a_step_in_float32_keeps_float32() -> None:
    p = nn.Parameter([1.0, 2.0])
    opt = optim.Adam([p])
    (p * p).sum().backward()
    opt.step()
    assert p.dtype is float32 and opt.param_groups[0].slots["exp_avg"][0].dtype is float32


def test_maximize_goes_up() -> None:
    p = nn.Parameter([1.0])
    opt = optim.SGD([p], lr=0.1, maximize=True)
    (p * 2).sum().backward()
    opt.step()
    assert p.tolist() == pytest.approx([1.2])


def test_groups_have_options_of_their_own_and_lr_sets_all() -> None:
    a, b = nn.Parameter([1.0]), nn.Parameter([1.0])
    opt = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    (a + b).sum().backward()
    opt.step()
    assert a.tolist() == pytest.approx([0.9]) and b.tolist() == pytest.approx([0.5])
    rate = opt.param_groups[1]["lr"]
    opt.lr = 0.25
    assert float(rate) == 0.5 and float(opt.param_groups[1]["lr"]) == float(opt.lr) == 0.25
    opt.param_groups[0]["lr"] *= 0.5
    assert float(opt.lr) == 0.125


@pytest.mark.parametrize("wrap", [jit, lambda f: f])
def test_a_rate_that_was_read_stays_what_it_was(wrap: Callable[..., Any]) -> None:
    w = nn.Parameter([1.0])
    opt = optim.Adam([w], lr=0.5)
    schedule = optim.ExponentialLR(opt, 0.5)
    rates: list[Any] = []
    steps: list[Any] = []

    @wrap
    def step() -> None:
        (w * w).sum().backward()
        opt.step()
        rates.append(opt.param_groups[0]["lr"])
        steps.append(opt.param_groups[0].get("step"))
    for _ in range(4):
        step()
        rates.append(opt.param_groups[0]["lr"])
        schedule.step()
    assert [float(x) for x in rates] == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625]
    assert [int(x) for x in steps] == [1, 2, 3, 4]


def test_a_parameter_without_gradient_is_left_alone() -> None:
    a, b = nn.Parameter([1.0]), nn.Parameter([1.0])
    opt = optim.Adam([a, b], lr=0.1, weight_decay=0.5)
    a.sum().backward()
    opt.step()
    assert a.tolist() != [1.0] and b.tolist() == [1.0]


def test_state_dict_round_trip_continues_exactly() -> None:
    def train(p: nn.Parameter, opt: optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            opt.zero_grad()
            (p * p).sum().backward()
            opt.step()

    p, q = nn.Parameter([1.0, 2.0]), nn.Parameter([1.0, 2.0])
    one, two = optim.Adam([p], lr=0.1), optim.Adam([q])
    train(p, one, 3)
    q.requires_grad_(False).assign(p.detach()).requires_grad_()
    two.load_state_dict(one.state_dict())
    assert float(two.lr) == 0.1
    train(p, one, 3), train(q, two, 3)
    assert p.tolist() == q.tolist()


def test_errors() -> None:
    p = nn.Parameter([1.0])
    with pytest.raises(ArgumentError, match="Adam: a list of parameters was expected, not one tensor"):
        optim.Adam(nn.Parameter([1.0, 2.0]))
    with pytest.raises(ArgumentError, match="SGD: no parameters were given"):
        optim.SGD([])
    with pytest.raises(ArgumentError, match="Adam: lr must not be negative, got -1"):
        optim.Adam([p], lr=-1)
    with pytest.raises(ArgumentError, match=r"Adam: betas must lie in \[0, 1\), got \(1.0, 0.9\)"):
        optim.Adam([p], betas=(1.0, 0.9))
    with pytest.raises(ArgumentError, match="SGD: a parameter was given twice"):
        optim.SGD([p, p])
    with pytest.raises(ArgumentError, match="SGD: nesterov needs a momentum and no dampening"):
        optim.SGD([p], nesterov=True)
    with pytest.raises(ArgumentError, match=r"SGD: a tensor f32\[1\] that is the result of an operator"):
        optim.SGD([p * 2])
    with pytest.raises(ArgumentError, match="SGD: no option 'learning_rate'"):
        optim.SGD([{"params": [p], "learning_rate": 1}])
    with pytest.raises(ArgumentError, match="Adam has 1 groups, the state has 0"):
        optim.Adam([p]).load_state_dict({"groups": []})


DECAYING = {"SGD": lambda ps: optim.SGD(ps, momentum=0.9), "Adam": optim.Adam, "AdamW": optim.AdamW,
            "Adamax": optim.Adamax, "NAdam": optim.NAdam, "Adadelta": optim.Adadelta, "Lion": optim.Lion,
            "RMSprop": lambda ps: optim.RMSprop(ps, momentum=0.9, centered=True)}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [float32, float64])
@pytest.mark.parametrize("name", DECAYING)
def test_what_only_decays_ends_at_zero_and_not_at_denormal_numbers(name: str, kind: DType, compiled: bool) -> None:
    """Processors are slow with those; 0.9 times the smallest of them is the smallest of them again."""
    p = nn.Parameter(np.ones(3, kind.numpy))
    opt = DECAYING[name]([p])
    slots = [slot for key, (slot,) in opt.param_groups[0].slots.items() if key != "exp_inf"]   # which keeps eps
    for slot in slots:
        slot.assign(np.full(3, np.finfo(kind.numpy).smallest_normal * 4, kind.numpy))
    p.grad = zeros(3, dtype=kind)
    (jit(opt.step) if compiled else opt.step)()
    assert slots
    assert all((slot.numpy() == 0).all() for slot in slots)


def test_small_means_of_gradients_are_kept() -> None:
    p = nn.Parameter(np.ones(2, np.float32))
    opt = optim.SGD([p], momentum=0.5)
    p.grad = tensor([4e-30, np.nan], dtype=float32)
    opt.step()
    opt.step()
    np.testing.assert_allclose(opt.param_groups[0].slots["momentum_buffer"][0].numpy(), [6e-30, np.nan], rtol=2e-5)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_on_from_its_state_as_if_it_had_not_stopped(search: str | None, tmp_path: Path) -> None:
    def run(p: Any, opt: Any, steps: int) -> list[float]:
        def closure() -> Any:
            opt.zero_grad()
            loss = (100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2).sum()
            loss.backward()
            return loss
        return [float(opt.step(closure)) for _ in range(steps)]

    def made() -> Any:
        p = nn.Parameter(np.array([-1.5, 2.0]))
        return p, optim.LBFGS([p], lr=0.1, max_iter=3, history_size=4, line_search_fn=search)
    p, opt = made()
    run(p, opt, 4)
    tn.save({"p": p, "opt": opt.state_dict()}, tmp_path / "state")
    state = tn.load(tmp_path / "state")
    q, again = made()
    with tn.no_grad():
        q.assign(state["p"])
    again.load_state_dict(state["opt"])
    assert run(p, opt, 4) == run(q, again, 4)
    state["opt"]["memory"]["last"] = [tn.zeros(3)]
    with pytest.raises(ArgumentError, match="its memory was expected"):
        again.load_state_dict(state["opt"])


class Trusting(optim.Optimizer):
    """An optimizer as one writes it for PyTorch: options in a dictionary, state by parameter."""

    def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.5) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def step(self) -> None:
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if not state:
                        state["mean"], state["count"] = zeros(p.shape), 0
                    state["count"] += 1
                    state["mean"].mul_(group["momentum"]).add_(p.grad)
                    p.sub_(state["mean"] * (group["lr"] / state["count"]))


@pytest.mark.parametrize("wrap", [jit, lambda f: f])
def test_an_optimizer_with_a_state_of_its_own(wrap: Callable[..., Any]) -> None:
    w = nn.Parameter([1.0, 2.0])
    opt = Trusting([w], lr=0.25)

    @wrap
    def step() -> Any:
        loss = (w * w).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    expected, mean, found = np.array([1.0, 2.0], np.float32), np.zeros(2, np.float32), []
    for k in range(1, 5):
        mean = 0.5 * mean + 2 * expected
        found.append(expected @ expected)
        expected = expected - mean * 0.25 / k
        assert float(step()) == pytest.approx(found[-1], rel=1e-5)
    np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-5)
    assert opt.state[w]["count"] == 4
    saved, before = opt.state_dict(), w.detach()
    later = [float(step()) for _ in range(3)]
    w.data.copy_(before)
    opt.load_state_dict(saved)
    assert [float(step()) for _ in range(3)] == later
    assert repr(opt).startswith("Trusting(lr=0.25, momentum=0.5")


def test_the_state_of_a_parameter() -> None:
    w = nn.Parameter([1.0, 2.0])
    opt = optim.Adam([w], lr=0.1)
    (w * w).sum().backward()
    opt.step()
    state = opt.state[w]
    assert list(state) == ["step", "exp_avg", "exp_avg_sq"] and int(state["step"]) == 1
    opt.step()
    assert int(state["step"]) == 2 and state["exp_avg"].tolist() == opt.param_groups[0].slots["exp_avg"][0].tolist()
    with pytest.raises(ArgumentError, match="no list of dictionaries"):
        opt.load_state_dict({"groups": [{**opt.state_dict()["groups"][0], "state": 3}]})


def test_schedules_have_pytorch_s_places() -> None:
    from tenon.optim import lr_scheduler
    names = ("OneCycleLR", "CyclicLR", "CosineAnnealingWarmRestarts", "MultiplicativeLR", "StepLR", "LRScheduler")
    assert all(issubclass(getattr(lr_scheduler, name), optim.Schedule) for name in names)
    with pytest.raises(ArgumentError, match="step_size must be at least 1"):
        optim.StepLR(optim.SGD([nn.Parameter([1.0])], lr=0.1), 0)


def test_one_cycle_steps_behind_its_last_batch_too() -> None:
    """The loop of every program: as many steps of the schedule as of the optimizer; the numbers are PyTorch's."""
    schedule = optim.OneCycleLR(optim.SGD([nn.Parameter([1.0])], lr=0.1, momentum=0.9), max_lr=1.0, total_steps=5)
    rates = []
    for _ in range(5):
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    np.testing.assert_allclose(rates[-2:], [4e-6, 0.18825834605023686], rtol=1e-9)
    with pytest.raises(ArgumentError, match="step 6 of a cycle of 5 steps"):
        schedule.step()


def test_a_schedule_by_get_lr() -> None:
    class Halving(optim.lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float]:
            return [base * 0.5 ** self.last_epoch for base in self.base_lrs]
    opt = optim.SGD([nn.Parameter([1.0])], lr=0.5)
    schedule = Halving(opt)
    schedule.step()
    assert schedule.get_last_lr() == [0.25] and float(opt.lr) == 0.25


@pytest.mark.parametrize("wrap", [jit, lambda f: f])
def test_a_parameter_that_stands_still_makes_no_step(wrap: Callable[..., Any]) -> None:
    """What Adam corrects by the number of steps is that of each parameter, as in PyTorch."""
    a, b = nn.Parameter([1.0, 2.0]), nn.Parameter([1.0, -1.0])
    opt = optim.Adam([a, b], lr=0.1)

    @wrap
    def step(both: bool) -> None:
        loss = (a * a).sum() + (b * b).sum() if both else (a * a).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()

    def adam(x: Any, mean: Any, square: Any, count: int) -> Any:
        gradient = 2 * x
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient ** 2
        return x - 0.1 * mean / (1 - 0.9 ** count) / (np.sqrt(square / (1 - 0.999 ** count)) + 1e-8), mean, square
    states = [(np.array(p.tolist()), np.zeros(2), np.zeros(2)) for p in (a, b)]
    counts = [0, 0]
    for both in (True, False, False, True, False, True):
        step(both)
        for k in range(2 if both else 1):
            counts[k] += 1
            states[k] = adam(*states[k], counts[k])
    for p, (x, _, _) in zip((a, b), states, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-5)
    assert [int(opt.state[p]["step"]) for p in (a, b)] == counts == [6, 3]
    other = optim.Adam([a, b], lr=0.1)
    other.load_state_dict(opt.state_dict())
    assert [int(other.state[p]["step"]) for p in (a, b)] == counts
    bad = opt.state_dict()
    bad["groups"][0]["clocks"]["of"] = [0, 7]
    with pytest.raises(ArgumentError, match="counts of steps"):
        other.load_state_dict(bad)


@pytest.mark.parametrize("wrap", [jit, lambda f: f])
def test_a_step_with_a_closure(wrap: Callable[..., Any]) -> None:
    w = nn.Parameter(np.array([2.0, -1.0]))
    opt = optim.SGD([w], lr=0.25)

    def closure() -> Any:
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss
    step = wrap(lambda: opt.step(closure))
    assert [float(step()) for _ in range(3)] == [5.0, 1.25, 0.3125]
    assert w.tolist() == [0.25, -0.125]


def test_hooks_are_called_before_and_after_a_step() -> None:
    w, seen = nn.Parameter([1.0]), []
    opt = optim.SGD([w], lr=1.0)
    before = opt.register_step_pre_hook(lambda o, args, named: seen.append((o is opt, w.item())))
    opt.register_step_post_hook(lambda o, args, named: seen.append((args, w.item())))
    for _ in range(2):
        opt.zero_grad()
        w.sum().backward()
        opt.step()
        before.remove()
    assert seen == [(True, 1.0), ((), 0.0), ((), -1.0)]


def test_groups_of_another_optimizer_are_taken_over_with_their_options():
    class Around(optim.Optimizer):
        def __init__(self, params, **options):
            super().__init__(params, {"rho": 0.05, **options})
            self.base = optim.SGD(self.param_groups, **options)
            self.param_groups = self.base.param_groups

        def step(self):
            self.base.step()
    p = nn.Parameter([1.0])
    opt = Around([p], lr=0.5, momentum=0.9)
    for _ in range(2):
        opt.zero_grad()
        (p * 2).sum().backward()
        opt.step()
    assert opt.param_groups[0]["rho"] == 0.05 and opt.param_groups[0]["lr"] == 0.5
    assert abs(p.item() - (1 - 0.5 * 2 - 0.5 * (0.9 * 2 + 2))) < 1e-6


def test_a_state_of_before_an_option_was_there_is_taken() -> None:
    p = nn.Parameter(np.ones(2))
    state = optim.Adam([p], lr=0.5).state_dict()
    del state["groups"][0]["options"]["decoupled_weight_decay"]
    opt = optim.Adam([p], decoupled_weight_decay=True)
    opt.load_state_dict(state)
    assert float(opt.lr) == 0.5 and opt.param_groups[0]["decoupled_weight_decay"]
