"""Arguments, parameters and buffers that a compiled function of PyTorch's changes, most of them in their own memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tenon.torch
from interop.torch_compiled import assert_close
from tenon.torch import fx_program, input_mutations


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    tenon.torch.reset_report()
    return torch.compile(function, backend="tenon", **options)


@pytest.fixture
def updated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results of each program take the memory of an argument."""
    found: list[int] = []

    def counted(*arguments: Any) -> Any:
        pairs = input_mutations.updates(*arguments)
        found.append(len(pairs))
        return pairs
    monkeypatch.setattr(fx_program, "updates", counted)
    return found


def swapped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    old = a.clone()
    a.copy_(b)
    b.copy_(old)
    return a + b


def turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.copy_(b)
    b.add_(1)
    return b.t()


def given_back(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.mul_(b)
    return a, a.t()[1:]


def rows_and_columns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[0] = b.sum()
    a[:, -1] += b[:, 0]
    return a.sum(0)


def read_afterwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    old = a @ b
    a.add_(old).tanh_()
    return old.sum() + (a @ old).sum()


def both_from_one(a: torch.Tensor, b: torch.Tensor) -> None:
    total = a + b
    a.copy_(total)
    b.copy_(total)


def product_of_itself(a: torch.Tensor, b: torch.Tensor) -> None:
    a.copy_(a @ a)
    b.copy_(b.t().clone())


def with_pytorch_between(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    frequent = torch.mode(b).values         # which PyTorch finds
    b.sub_(a)
    return frequent + a.sum()


PROGRAMS = [swapped, turned, given_back, rows_and_columns, read_afterwards, both_from_one, product_of_itself,
            with_pytorch_between]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "in order": lambda x: x, "turned": lambda x: x.t().contiguous().t(), "with gaps": lambda x: x.repeat(1, 2)[:, ::2],
    "in float64": torch.Tensor.double, "in bfloat16": torch.Tensor.bfloat16}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_changed_as_eagerly(program: Callable[..., Any], layout: str, dynamic: bool) -> None:
    run, lay = compiled(program, dynamic=dynamic), LAYOUTS[layout]
    for size in (3, 3, 4, 1) if dynamic else (3, 3):
        of_tenon, of_pytorch = ([lay(torch.linspace(-1, 1, size * size).reshape(size, size) + k) for k in range(2)]
                                for _ in range(2))
        found, expected = run(*of_tenon), program(*of_pytorch)
        relative = 2e-2 if layout == "in bfloat16" else 1e-5
        assert_close(of_tenon, of_pytorch, relative)
        if expected is not None:
            assert_close(found, expected, relative)


def test_most_are_changed_in_their_own_memory(updated: list[int]) -> None:
    a, b = torch.ones(3, 3), torch.zeros(3, 3)
    compiled(product_of_itself)(a, b)
    assert updated == [2]
    compiled(given_back)(a, b)
    assert updated == [2, 1]


def test_a_value_that_is_returned_is_not_the_argument() -> None:
    def counted(count: torch.Tensor) -> torch.Tensor:
        found = count + 1
        count.copy_(found)
        return found
    count = torch.zeros(3)
    found = compiled(counted)(count)
    count.fill_(7)
    assert found.tolist() == [1, 1, 1]


def test_buffers_in_training() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
              for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    run = compiled(models[0])
    for _ in range(3):
        x = torch.randn(5, 3, 6, 6)
        for model, call in zip(models, (run, models[1]), strict=True):
            call(x).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
    assert_close(models[0].state_dict(), models[1].state_dict(), 1e-4)
    assert models[0][1].num_batches_tracked == 3


def test_what_fails_changes_nothing() -> None:
    def stored(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        rows = table[places]
        table.add_(1)
        return rows
    table = torch.zeros(4, 2)
    run = compiled(stored)
    run(table, torch.tensor([1, 3]))
    with pytest.raises((IndexError, RuntimeError)):
        run(table, torch.tensor([1, 9]))
    assert table.unique().tolist() == [1]


def test_versions_count_changes() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()

    @torch.no_grad()
    def step(weight: torch.Tensor) -> None:
        weight.sub_(0.1)
    compiled(step)(weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
