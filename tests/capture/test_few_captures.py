"""Functions whose sizes change from call to call are captured once or twice, whatever is done with the sizes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

SHAPES = [(2, 72), (3, 5), (5, 7), (2, 4), (7, 33), (40, 16), (31, 109), (3, 8), (37, 300)]


def halves(x: tn.Tensor) -> Any:
    return x[:, ::2] + tn.arange(x[:, ::2].shape[1])


def pairs_of_rows(x: tn.Tensor) -> Any:
    shifted = tn.cat([x, x[:, 1:]], 1)
    return tn.stack([shifted, shifted], 0).reshape(-1, shifted.shape[1])


def without_the_last(x: tn.Tensor) -> Any:
    return x[:, :-1].reshape(-1, x.shape[1] - 1)


def padded(x: tn.Tensor) -> Any:
    return tn.pad(x, [(0, 0), (0, -x.shape[1] % 8)]).reshape(x.shape[0], -1, 8).sum(2)


def chunked(x: tn.Tensor) -> Any:
    first, second = x.chunk(2, 1)
    return first.sum() * second.sum()


def mean_by_length(x: tn.Tensor) -> Any:
    return x.sum() / len(x), x.sum() * (1.0 / x.shape[0]), x.sum() / float(x.shape[1])


def scaled(x: tn.Tensor) -> Any:
    return x * x.shape[1] ** -0.5 / math.sqrt(len(x)) + tn.full((1,), 1 / x.shape[0])


def a_part_of_the_rows(x: tn.Tensor) -> Any:
    first = 2 + int(0.4 * x.shape[0])
    return tn.zeros(first, 3), tn.zeros(len(x), 3) + tn.arange(len(x))[:, None]


def numbers_of_sizes(x: tn.Tensor) -> Any:
    rows, columns = x.shape
    return (x.sum(), rows / columns, divmod(columns, 3), round(rows / 3), abs(rows - 5), -rows, rows ** 2, 2 ** rows,
            [len(x), columns * 0.25], f"{rows / 3:.3f}" if rows < 0 else "", isinstance(rows / 2, float))


def a_gradient(x: tn.Tensor) -> Any:
    return tn.grad(lambda x: (x * x).sum() / len(x))(x)


def a_loop(x: tn.Tensor) -> Any:
    return tn.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + 1 / x.shape[0], c[1] + 1), (x.sum(), tn.tensor(0)))[0]


def noise(x: tn.Tensor) -> Any:
    return x * tn.rand(x.shape) + tn.randn_like(x), tn.linspace(0, x.shape[0] / 2, 5)


def told(x: tn.Tensor) -> Any:
    print("rows:", len(x), x.shape[0] / 2)
    return x.sum()


FUNCTIONS = [halves, pairs_of_rows, without_the_last, padded, chunked, mean_by_length, scaled, a_part_of_the_rows,
             numbers_of_sizes, a_gradient, a_loop, noise, told]


def leaves(x: Any) -> list[Any]:
    return [y for part in x for y in leaves(part)] if isinstance(x, (tuple, list)) else [x]


def captures(jitted: Any) -> int:
    """How many there are; all calls run one of them."""
    assert all(record.eager is None for record in jitted.records.values())
    return sum(record.family.captures for record in jitted.records.values())


@pytest.mark.parametrize("f", FUNCTIONS)
def test_two_captures_serve_all_sizes(f: Callable[..., Any]) -> None:
    jitted = tn.jit(f)
    for shape in SHAPES:
        x = tn.tensor(np.random.default_rng(0).standard_normal(shape))
        tn.manual_seed(3)
        wanted_leaves = leaves(f(x))
        tn.manual_seed(3)
        for wanted, found in zip(wanted_leaves, leaves(jitted(x)), strict=True):
            assert type(wanted) is type(found)
            if isinstance(wanted, tn.Tensor):
                assert wanted.dtype is found.dtype and wanted.shape == found.shape
                np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-9, 1e-12)
            else:
                assert wanted == found
    assert captures(jitted) <= (4 if f is a_part_of_the_rows else 2)      # parts of 0 or 1 rows are of their own


def test_what_a_number_of_a_size_decides_is_a_condition() -> None:
    @tn.jit
    def f(x: tn.Tensor) -> tn.Tensor:
        part = 0.5 * len(x)
        return x.sum() / part if part > 3.2 else x.sum() * part

    for rows in (2, 3, 9, 5, 7, 30, 4):
        assert float(f(tn.ones(rows, 2))) == pytest.approx(4.0 if rows > 6 else rows * rows)
    assert captures(f) == 3


def test_an_odd_and_an_even_size_each_have_a_symbol() -> None:
    @tn.jit
    def pairs(x: tn.Tensor) -> tn.Tensor:
        if x.shape[1] % 2:
            x = tn.pad(x, [(0, 0), (0, 1)])
        return x.reshape(x.shape[0], x.shape[1] // 2, 2).sum(2)

    for shape in SHAPES:
        x = np.random.default_rng(0).standard_normal(shape)
        wide = np.pad(x, [(0, 0), (0, shape[1] % 2)])
        np.testing.assert_allclose(pairs(tn.tensor(x)).numpy(), wide[:, ::2] + wide[:, 1::2], 1e-12)
    assert captures(pairs) <= 4


def test_as_many_rows_as_channels_are_no_case_of_their_own() -> None:
    net = nn.Conv1d(3, 6, 3)

    @tn.jit
    def step(x: tn.Tensor) -> Any:
        loss = (net(x) ** 2).sum()
        loss.backward()
        net.zero_grad()
        return loss

    for rows in (4, 5, 6, 7, 3):
        x = tn.randn(rows, 3, 8)
        assert float(step(x)) == pytest.approx(float((net(x) ** 2).sum()), rel=1e-5)
    assert captures(step) == 2


def test_a_training_step_averages_over_any_number_of_rows() -> None:
    def train(rows: list[int], jitted: bool) -> tuple[list[float], np.ndarray, int]:
        tn.manual_seed(0)
        net = nn.Linear(3, 2)
        opt = optim.Adam(net.parameters(), 1e-2)

        def step(x: tn.Tensor, y: tn.Tensor) -> float:
            loss = ((net(x) - y) ** 2).sum() / len(x)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss.item() * len(x)
        run: Any = tn.jit(step) if jitted else step
        rng = np.random.default_rng(0)
        losses = [run(tn.tensor(rng.standard_normal((n, 3)).astype("f")), tn.tensor(rng.standard_normal((n, 2)).astype("f")))
                  for n in rows]
        return losses, net.weight.detach().numpy(), captures(run) if jitted else 0

    rows = [8, 8, 7, 3, 5, 8, 9, 1, 2, 31]
    (losses, weight, _), (found, other, count) = train(rows, False), train(rows, True)
    np.testing.assert_allclose(found, losses, 1e-5)
    np.testing.assert_allclose(other, weight, 1e-5)
    assert count <= 4


def test_a_module_keeps_what_it_counts_of_sizes() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.average = 0, 0.0

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            self.seen += len(x)
            self.average = 0.9 * self.average + 0.1 / len(x)
            return x.sum() / self.seen

    plain, jitted = Counting(), Counting()
    run = tn.jit(jitted)
    for rows in (4, 5, 3, 9, 4, 2, 1, 7):
        assert float(plain(tn.ones(rows, 2))) == pytest.approx(float(run(tn.ones(rows, 2))))
        assert (jitted.seen, type(jitted.seen)) == (plain.seen, int)
        assert jitted.average == plain.average and type(jitted.average) is float


def test_a_number_that_is_an_even_size_is_a_number_again() -> None:
    @tn.jit
    def f(x: tn.Tensor, n: int) -> tn.Tensor:
        x = x[:n]
        scale = 1 / len(x)
        return x.reshape(len(x) // 2, 2).sum(0) * scale if len(x) % 2 == 0 else x * scale

    for n in (4, 5, 6, 8, 7, 12, 9, 10):
        part = np.arange(n) / n
        np.testing.assert_allclose(f(tn.arange(20).astype("f64"), n).numpy(), part if n % 2 else part.reshape(-1, 2).sum(0))
    assert captures(f) <= 5


def test_a_size_that_is_a_key_is_itself() -> None:
    f = tn.jit(lambda x: {x.shape[0]: x.sum()})
    for rows in (2, 3, 5, 2, 7):
        assert list(f(tn.ones(rows))) == [rows]


SCALES = [0.5 ** k for k in range(200)]
LAYERS = [tn.ones(3) * k for k in range(200)]


def scaled_by_one_of_a_list(x: Any, n: int) -> Any:
    y = x.sum() + x
    scale = SCALES[n]
    return y * scale


def one_of_many_tensors(x: Any, n: int) -> Any:
    return (x * LAYERS[n]).sum()


def as_many_as_chosen(x: Any, n: int) -> Any:
    return x * math.comb(n + 3, 2)


def in_a_nest_that_grows(kept: dict[str, Any], x: Any, n: int) -> Any:
    kept["sum"] = kept.get("sum", 0) + x
    kept["all"].append(x[0])
    return kept["sum"] * n


@pytest.mark.parametrize("f", [scaled_by_one_of_a_list, one_of_many_tensors, as_many_as_chosen])
def test_calls_like_none_before_are_soon_left_to_python(f: Callable[..., Any]) -> None:
    jitted = tn.jit(f)
    for n in range(150):
        x = tn.ones(3) * (n % 7)
        assert jitted(x, n).tolist() == f(x, n).tolist()
        assert sum(len(record.captures) for record in jitted.records.values()) <= 10
    assert "captured anew at every call" in str(tn.explain(jitted))


def test_arguments_like_none_before_are_soon_left_to_python() -> None:
    def f(x: Any, z: complex) -> Any:
        return x * z.real
    jitted = tn.jit(f)
    for n in range(100):
        assert jitted(tn.ones(2), complex(n, 1)).tolist() == [n, n]
    assert len(jitted.records) < 30
    for _ in range(3 * 64):
        assert jitted(tn.ones(2), 7.5 + 0j).tolist() == [7.5, 7.5]
    assert any(record.captures[-1].calls > 1 for record in jitted.records.values() if record.captures)


def test_a_nest_that_grows_is_soon_left_to_python() -> None:
    jitted, kept, want = tn.jit(in_a_nest_that_grows), {"all": []}, {"all": []}
    for n in range(60):
        x = tn.ones(3) * n
        assert jitted(kept, x, n).tolist() == in_a_nest_that_grows(want, x, n).tolist()
    assert [x.tolist() for x in kept["all"]] == [x.tolist() for x in want["all"]]
    assert len(jitted.records) < 30


def test_calls_that_come_again_are_captured() -> None:
    jitted = tn.jit(lambda x, n: (x * LAYERS[n]).sum())
    for n in [*range(12)] * 4:
        assert jitted(tn.ones(3), n).item() == 3 * n
    (record,) = jitted.records.values()
    assert len(record.captures) == 12 and all(captured.calls > 1 for captured in record.captures)


def test_debugging_tools_see_calls_like_none_before() -> None:
    jitted = tn.jit(lambda x, z: tn.log(x) * z.real)
    for n in range(40):
        jitted(tn.ones(3), complex(n, 1))
    with pytest.raises(tn.debug.BadNumber), tn.debug.check(jitted):
        jitted(-tn.ones(3), complex(77, 1))


def test_whether_a_parameter_has_a_gradient_matters_only_where_that_is_asked():
    w = nn.Parameter(tn.ones(2))
    forward = tn.jit(lambda x: (x * w).sum())
    asking = tn.jit(lambda x: (x * w).sum() * (1 if w.grad is None else 2))
    clearing = tn.jit(lambda x: (setattr(w, "grad", None), (x * w).sum())[1])
    for k, found in enumerate([2.0, 4.0, 4.0, 2.0]):
        w.grad = None if k in (0, 3) else tn.ones(2)
        assert forward(tn.ones(2)).item() == 2.0 and asking(tn.ones(2)).item() == found
        assert clearing(tn.ones(2)).item() == 2.0 and w.grad is None
    assert [sum(len(r.captures) for r in f.records.values()) for f in (forward, asking)] == [1, 2]
