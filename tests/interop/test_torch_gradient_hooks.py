"""Functions that see gradients: `register_hook`, `retain_grad`, backward hooks of modules, equal to PyTorch's."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn

torch = pytest.importorskip("torch")


def interior(t: Any, n: Any) -> Any:
    x, seen = t.tensor([1.0, 2.0], requires_grad=True), []
    y = x * 3
    z = y * 2               # it has been read before it gets its hooks
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    (z + y).sum().backward()
    handle.remove()
    return seen, x.grad.tolist()


def leaf(t: Any, n: Any) -> Any:
    x, seen = t.tensor([1.0, 2.0], requires_grad=True), []
    handle = x.register_hook(lambda g: (seen.append(g.tolist()), g * 2)[1])
    (x * x).sum().backward()
    (x * 3).sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    return seen, x.grad.tolist()


def retained(t: Any, n: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad.tolist(), x.grad.tolist()


def second_derivative(t: Any, n: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * g)
    (first,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
    return first.tolist(), t.autograd.grad(first.sum(), x)[0].tolist()


def rounded(x: Any) -> Any:
    return None if x is None else np.round(np.array(x.tolist()), 5).tolist()


def of_modules(t: Any, n: Any) -> Any:
    x, seen = t.tensor([[1.0, 2.0]], requires_grad=True), []
    net = n.Sequential(n.Linear(2, 2), n.Tanh(), n.Linear(2, 1))
    with t.no_grad():
        for k, p in enumerate(net.parameters()):
            p.fill_(0.1 * k + 0.1)
    for m in net:
        m.register_full_backward_hook(
            lambda m, gi, go: seen.append((type(m).__name__, [*map(rounded, gi)], [*map(rounded, go)])))
    net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    net[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    net(x).sum().backward()
    net(x.detach()).sum().backward()
    return seen, rounded(x.grad), [rounded(p.grad) for p in net.parameters()]


def after_accumulation(t: Any, n: Any) -> Any:
    w, seen = t.tensor([1.0, 2.0], requires_grad=True), []
    handle = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    w.register_hook(lambda g: g * 3)
    for _ in range(2):
        (w * 2).sum().backward()
    found = t.autograd.grad((w * 2).sum(), w)[0].tolist()
    handle.remove()
    (w * 2).sum().backward()
    return seen, found, w.grad.tolist()


def optimizers_in_backward(t: Any, n: Any) -> Any:
    net = n.Sequential(n.Linear(3, 4), n.Linear(4, 1))
    for p in net.parameters():
        p.data.fill_(0.5)
    optimizers = {p: t.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}

    def step(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (net(t.ones(2, 3)) ** 2).mean().backward()
    return [rounded(p) for p in net.parameters()], [p.grad is None for p in net.parameters()]


def with_keywords(t: Any, n: Any) -> Any:
    class Scaled(n.Module):
        def forward(self, x: Any, scale: float = 1.0, *, shift: float = 0.0) -> Any:
            return x * scale + shift
    module, seen = Scaled(), []
    handles = [
        module.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        module.register_forward_pre_hook(lambda m, args, keywords: ((args[0] + 1,), {**keywords, "shift": 5.0}),
                                         with_kwargs=True, prepend=True),
        module.register_forward_hook(lambda m, args, keywords, out: seen.append(sorted(keywords)), with_kwargs=True),
        module.register_forward_hook(lambda m, args, out: out * 10, prepend=True)]
    while handles:
        seen.append(module(t.ones(2), scale=2.0).tolist())
        handles.pop(len(handles) // 2).remove()
    return seen


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("program", [interior, leaf, retained, second_derivative, of_modules, after_accumulation,
                                     optimizers_in_backward, with_keywords])
def test_hooks(program: Any) -> None:
    assert program(tn, nn) == program(torch, torch.nn)
