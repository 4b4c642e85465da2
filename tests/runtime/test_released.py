"""What loops keep of their turns is given back within a run: memory does not grow with the loops around them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import OverBudget, TenonError
from tenon.program import control_flow_steps, execution_plan
from tenon.runtime import parallel_profitability

SIZE = 2000


def values(seed: int, size: int = SIZE) -> Any:
    return tn.asarray(np.random.default_rng(seed).uniform(-0.7, 0.7, size))


def inner(x: Any, w: Any, turns: Any) -> Any:
    """A loop of unknown length, of which a gradient needs every turn."""
    return tn.while_loop(lambda s: s[0] < turns, lambda s: (s[0] + 1, tn.tanh(s[1] * w + 0.1)), (0, x))[1]


def loss(w: Any, x: Any, turns: Any) -> Any:
    return (inner(x, w, turns) ** 2).sum()


def trained(w: Any, x: Any, turns: Any, steps: Any) -> Any:
    """A training loop in the graph."""
    return tn.fori_loop(0, steps, lambda k, w: w - 0.01 * tn.grad(loss)(w, x, turns), w)


def with_an_inner_loop(w: Any, x: Any, turns: Any, steps: Any) -> Any:
    """Epochs of batches, and a loop in the loop that is differentiated."""
    def nested(w: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] + 1, inner(s[1], w, 3) + s[1]
        return (tn.while_loop(lambda s: s[0] < turns, body, (0, x))[1] ** 2).sum()

    def epoch(k: Any, w: Any) -> Any:
        return tn.fori_loop(0, 2, lambda j, w: w - 0.01 * tn.grad(nested)(w), w)
    return tn.fori_loop(0, steps, epoch, w)


def with_branches(w: Any, x: Any, turns: Any, steps: Any) -> Any:
    """Only some steps learn, some of them from another loop."""
    def step(k: Any, w: Any) -> Any:
        def learn() -> Any:
            return w - 0.01 * tn.grad(loss)(w, x, turns)

        def twice() -> Any:
            return w - 0.01 * tn.grad(loss)(w, x * 0.5, turns + 1) - 0.01 * tn.grad(loss)(w, x, turns)
        return tn.switch(k % 3, [learn, lambda: w, twice])
    return tn.fori_loop(0, steps, step, w)


def with_early_exit(w: Any, x: Any, turns: Any, steps: Any) -> Any:
    """Python's own loops, which end early."""
    count = tn.tensor(0)
    while count < steps:
        def of(w: Any) -> Any:
            h, n = x, tn.tensor(0)
            while n < turns:
                h = tn.tanh(h * w + 0.1)
                n = n + 1
                if (h * h).sum() < 1e-3:
                    break
            return (h ** 2).sum()
        g = tn.grad(of)(w)
        w = w - 0.01 * g
        count = count + 1
        if (g * g).sum() < 1e-12:
            break
    return w


def of_second_order(w: Any, x: Any, turns: Any, steps: Any) -> Any:
    """A gradient of a gradient in every step."""
    def slope(w: Any) -> Any:
        return (tn.grad(loss)(w, x, turns) ** 2).sum()
    return tn.fori_loop(0, steps, lambda k, w: w - 1e-4 * tn.grad(slope)(w), w)


def differentiated(w: Any, x: Any, turns: Any, steps: Any) -> Any:
    """The gradient of a loop whose turns have gradients: their cells go, its own stay."""
    def outer(w: Any) -> Any:
        def turn(s: Any) -> Any:
            return s[0] + 1, s[1] - 0.01 * tn.grad(loss)(s[1], x, turns)
        return (tn.while_loop(lambda s: s[0] < steps, turn, (0, w))[1] ** 2).sum()
    return tn.grad(outer)(w)


LOOPS = [trained, with_an_inner_loop, with_branches, with_early_exit, of_second_order]


def peak_of(jitted: Any, *arguments: Any) -> int:
    jitted(*arguments)
    return int(jitted.capture(*arguments).program.peak_bytes)


@pytest.mark.parametrize("function", LOOPS)
def test_memory_does_not_grow_with_the_steps(function: Callable[..., Any]) -> None:
    w, x = values(0), values(1)
    peaks = [peak_of(tn.jit(function, fullgraph=True), w, x, tn.tensor(20), tn.tensor(steps)) for steps in (6, 60)]
    assert peaks[0] == peaks[1] > 20 * SIZE * 8 / 2


@pytest.mark.parametrize("function", [*LOOPS, differentiated])
def test_what_is_given_back_changes_no_bit(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [(values(0, size), values(1, size), tn.tensor(turns), tn.tensor(steps))
             for size, turns, steps in [(7, 5, 4), (SIZE, 20, 6), (1, 0, 3), (1, 3, 0), (SIZE, 2, 5), (131, 33, 2)]]
    jitted = tn.jit(function, fullgraph=True)
    found = [jitted(*call).numpy() for call in calls]
    for module in (execution_plan, control_flow_steps):
        monkeypatch.setattr(module, "with_releases", lambda steps, results=(): list(steps))
    kept = tn.jit(function, fullgraph=True)
    for got, call in zip(found, calls, strict=True):
        assert got.tobytes() == kept(*call).numpy().tobytes()
        np.testing.assert_allclose(got, function(*call).numpy(), rtol=1e-9, atol=1e-12)


def test_one_after_the_other_loops_take_the_memory_of_one() -> None:
    def several(count: int) -> Callable[..., Any]:
        def run(w: Any, x: Any, turns: Any) -> Any:
            for _ in range(count):
                w = w - 0.01 * tn.grad(loss)(w, x, turns)
            return w
        return run
    peaks = [peak_of(tn.jit(several(count), fullgraph=True), values(0), values(1), tn.tensor(40)) for count in (2, 8)]
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("turns", [320, 1000])
def test_a_checkpoint_every_so_often_bounds_what_is_kept(turns: int) -> None:
    def long(every: int) -> Callable[..., Any]:
        def run(x: Any, turns: Any) -> Any:
            def some(state: Any) -> Any:
                start = state[0]
                return tn.while_loop(lambda s: (s[0] < turns) & (s[0] < start + every),
                                     lambda s: (s[0] + 1, tn.sin(s[1]) * 0.5 + x), state)
            body = tn.checkpoint(some) if every < turns else some
            return tn.while_loop(lambda s: s[0] < turns, body, (0, x))[1].sum()
        return tn.grad(run)
    x = values(0)
    peak = peak_of(tn.jit(long(32), fullgraph=True), x, tn.tensor(turns))
    turn = SIZE * 8 + 128
    assert peak < 3 * (32 + turns / 32 + 4) * turn + (1 << 17)          # chunks are at most that much larger than needed
    np.testing.assert_allclose(tn.jit(long(32))(x, tn.tensor(turns)).numpy(), long(32)(x, turns).numpy(), rtol=1e-9)


def test_threads_agree(monkeypatch: pytest.MonkeyPatch, three_threads: None) -> None:
    monkeypatch.setattr(parallel_profitability, "PARALLEL_WORK", 100)
    monkeypatch.setattr(parallel_profitability, "BARRIER_COST", 1)
    w, x = values(0, 40_000), values(1, 40_000)
    for function in (trained, with_branches, of_second_order):
        jitted = tn.jit(function, fullgraph=True)
        tn.set_num_threads(1)
        alone = jitted(w, x, tn.tensor(9), tn.tensor(7)).numpy()
        tn.set_num_threads(3)
        for _ in range(3):
            assert jitted(w, x, tn.tensor(9), tn.tensor(7)).numpy().tobytes() == alone.tobytes()


def test_calls_at_once_have_regions_of_their_own() -> None:
    jitted, w = tn.jit(trained, fullgraph=True), values(0)
    calls = [(w, values(k), tn.tensor(k + 3), tn.tensor(k + 1)) for k in range(12)]
    wanted = [jitted(*call).numpy() for call in calls]
    with ThreadPoolExecutor(4) as threads:
        for got, want in zip(threads.map(lambda call: jitted(*call).numpy(), calls * 3), wanted * 3, strict=True):
            assert got.tobytes() == want.tobytes()


def test_after_an_error_in_the_middle_the_next_run_is_right() -> None:
    table = tn.asarray(np.arange(5.0))

    @tn.jit(fullgraph=True)
    def run(w: Any, x: Any, turns: Any, steps: Any) -> Any:
        def step(k: Any, w: Any) -> Any:
            return w - 0.01 * tn.grad(loss)(w, x, turns) + 0 * tn.take(table, k)
        return tn.fori_loop(0, steps, step, w)
    arguments = values(0), values(1), tn.tensor(12)
    before = run(*arguments, tn.tensor(4)).numpy()
    with pytest.raises(TenonError):
        run(*arguments, tn.tensor(9))
    assert run(*arguments, tn.tensor(4)).numpy().tobytes() == before.tobytes()


def test_a_budget_holds_for_what_loops_keep() -> None:
    w, x, many, few = values(0), values(1), tn.tensor(400), tn.tensor(20)
    budget = 1 << 20
    jitted = tn.jit(trained, fullgraph=True, memory_budget=budget)
    free = tn.jit(trained, fullgraph=True)
    assert jitted(w, x, few, tn.tensor(50)).numpy().tobytes() == free(w, x, few, tn.tensor(50)).numpy().tobytes()
    with pytest.raises(OverBudget, match="memory_budget"):
        jitted(w, x, many, tn.tensor(2))
    assert jitted(w, x, few, tn.tensor(2)).numpy().tobytes() == free(w, x, few, tn.tensor(2)).numpy().tobytes()
    assert jitted.capture(w, x, few, tn.tensor(2)).program.peak_bytes <= budget
