"""Hooks of gradients: what a captured function does with them, and who has none; interop compares them with PyTorch."""

from typing import Any, NamedTuple

import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError, GradientError


def test_captured_functions_call_hooks() -> None:
    x, p = tn.tensor([1.0, 2.0], requires_grad=True), nn.Parameter([1.0, 2.0])

    @tn.jit
    def inside() -> None:
        y = x * 3
        y.register_hook(lambda g: g * 10)
        y.sum().backward()

    @tn.jit
    def step(a: Any) -> None:
        (p * a).sum().backward()

    def gradient(run: Any, of: Any, *args: Any) -> Any:
        of.grad = None
        run(*args)
        return of.grad.tolist()
    assert [gradient(inside, x) for _ in range(3)] == [[30.0, 30.0]] * 3
    assert [gradient(step, p, tn.ones(2)) for _ in range(3)] == [[1.0, 1.0]] * 3
    for _ in range(2):
        with p.register_hook(lambda g: g * 5):
            assert [gradient(step, p, tn.ones(2)) for _ in range(3)] == [[5.0, 5.0]] * 3
        assert [gradient(step, p, tn.ones(2)) for _ in range(3)] == [[1.0, 1.0]] * 3


def test_captured_functions_call_hooks_after_accumulation() -> None:
    p, seen = nn.Parameter([1.0, 2.0]), []

    @tn.jit
    def step(a: Any) -> None:
        (p * a).sum().backward()
    step(tn.ones(2))
    p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    step(tn.ones(2))
    assert seen == [[2.0, 2.0]]
    with pytest.raises(GradientError, match="no leaf"):
        (p * 2).register_post_accumulate_grad_hook(print)


def test_a_hook_with_keywords_returns_a_pair() -> None:
    layer = nn.Identity()
    layer.register_forward_pre_hook(lambda m, args, keywords: args, with_kwargs=True)
    with pytest.raises(ArgumentError, match="must return None, or a tuple and a dict, not tuple"):
        layer(tn.ones(2))


def test_a_tensor_without_gradients_has_no_hooks() -> None:
    with pytest.raises(GradientError, match="requires no gradient"):
        tn.ones(2).register_hook(print)


def test_a_module_with_a_backward_hook_returns_its_named_tuple() -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    class Twice(nn.Module):
        def forward(self, x: Any) -> Pair:
            return Pair(x * 2, x * 3)
    net, seen = Twice(), list[Any]()
    net.register_full_backward_hook(lambda module, given, came: seen.append([g.tolist() for g in came]))
    out = net(tn.ones(1, requires_grad=True))
    (out.left + out.right * 5).sum().backward()
    assert type(out) is Pair and seen == [[[1.0], [5.0]]]


@pytest.mark.parametrize("run", [lambda f: f, tn.jit])
def test_hooks_see_what_autograd_grad_finds_for_leaves(run: Any) -> None:
    w = tn.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: g * 5)

    def slopes(w: Any) -> Any:
        y = w * 3
        y.register_hook(lambda g: g * 10)
        return tn.autograd.grad((y * 2).sum(), [y, w])
    assert [g.tolist() for g in run(slopes)(w)] == [[2.0, 2.0], [300.0, 300.0]]     # as PyTorch's


def test_a_retained_gradient_is_kept_once_and_after_all_hooks() -> None:
    w = tn.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert (y.grad.tolist(), w.grad.tolist()) == ([10.0, 10.0], [30.0, 30.0])


@pytest.mark.parametrize("part", [lambda x: x[:], lambda x: x[0:2], lambda x: x[...], lambda x: x.squeeze(),
                                  lambda x: tn.squeeze(x), lambda x: x.reshape(2), lambda x: x.expand(2)])
@pytest.mark.parametrize("run", [lambda f: f, tn.jit])
def test_all_of_a_tensor_is_a_tensor_of_its_own(run: Any, part: Any) -> None:
    def hooked(w: Any) -> Any:
        y = part(w)
        y.register_hook(lambda g: g * 5)
        y.retain_grad()
        (w * 2).sum().backward()
        return y.grad, y.is_leaf

    def changed(x: Any) -> Any:
        y = part(x)
        y += 1
        return x, y
    w = tn.tensor([1.0, 2.0], requires_grad=True)
    assert (run(hooked)(w), w.grad.tolist()) == ((None, False), [2.0, 2.0])
    assert [x.tolist() for x in run(changed)(tn.tensor([1.0, 2.0]))] == [[1.0, 2.0], [2.0, 3.0]]
