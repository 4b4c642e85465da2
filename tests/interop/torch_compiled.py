"""A model of PyTorch's run eagerly and by Tenon, and what both leave behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

import tenon.torch
from benchmarks.torch_models import tensors_in


def assert_close(found: Any, expected: Any, relative: float, what: str = "") -> None:
    """Equal but for this much of the largest element."""
    pairs = list(zip(tensors_in(found), tensors_in(expected), strict=True))
    least = max((1e-3 * largest(y) for _, y in pairs if y.is_floating_point()), default=0)    # the others are noise
    for k, (x, y) in enumerate(pairs):
        assert (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride()), f"{what} {k}"
        if not y.numel():
            continue
        if not y.is_floating_point():
            assert torch.equal(x, y), f"{what} {k}"
            continue
        torch.testing.assert_close(x, y, rtol=0, atol=relative * max(largest(y), least), equal_nan=True,
                                   msg=lambda text, k=k: f"{what} {k}: {text}")


def largest(x: torch.Tensor) -> float:
    return max(float(x.detach().abs().nan_to_num(0, 0, 0).max()), 1e-6) if x.numel() else 0.0


def loss_of(result: Any) -> torch.Tensor:
    """A number that depends on all that a model gives."""
    return sum((x.float() * torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)).mean()
               for x in tensors_in(result) if x.is_floating_point() and x.requires_grad)


def seeded(call: Callable[..., Any], *inputs: Any) -> Any:
    torch.manual_seed(3)
    return call(*inputs)


def train_step(model: torch.nn.Module, call: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Any]:
    """The results, the gradients of parameters and inputs, and the buffers, after one step."""
    inputs = tuple(x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x
                   for x in inputs)
    result = seeded(call, *inputs)
    loss_of(result).backward()
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in
                 (*model.parameters(), *(x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad))]
    return [result, gradients, list(model.buffers())]


def compare(model: torch.nn.Module, *inputs: Any, train: bool = True, mapped: bool = True, relative: float = 1e-4,
            **options: Any) -> None:
    """The model gives the same run by Tenon: in inference, and in two steps of training."""
    eager = copy.deepcopy(model)
    tenon.torch.reset_report()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="tenon", fullgraph=True, **options)
    for module in (model, eager):
        module.eval()
    with torch.no_grad():
        assert_close(seeded(compiled, *inputs), seeded(eager, *inputs), relative, "result")
    if train:
        for module in (model, eager):
            module.train()
        for _ in range(2):
            model.zero_grad(), eager.zero_grad()
            found, expected = train_step(model, compiled, inputs), train_step(eager, eager, inputs)
            assert_close(found[0], expected[0], relative, "result of training")
            assert_close(found[1], expected[1], relative * 10, "gradient")
            assert_close(found[2], expected[2], relative, "buffer")
    report = tenon.torch.report()
    assert report.programs
    if mapped:
        assert not report.in_torch, str(report)
