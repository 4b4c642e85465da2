"""Hooks of gradients in captured functions: called by `backward()` within the graph, as eager code calls them."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn


def network():
    tn.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


def with_hook(net, hook):
    """A step with a hook of what the first layer returns."""
    def f(x):
        h = net[0](x)
        h.register_hook(hook)
        net[2](net[1](h)).sum().backward()
    return f


def scaled(net, log):
    def f(x):
        h = net[0](x)
        first = h.register_hook(lambda g: g * 5)
        h.register_hook(lambda g: g * 2)
        h.register_hook(lambda g: None)
        first.remove()
        net[2](net[1](h)).sum().backward()
    return f


def counted(net, log):
    def hook(g):
        log.append(len(log))
        return g * len(log)

    return with_hook(net, hook)


def decides(net, log):
    def hook(g):
        if g.sum() > 0:
            return g * 3
        return g * 5

    return with_hook(net, hook)


def differentiated_twice(net, log):
    def f(x):
        h = net[0](x)
        h.register_hook(lambda g: g * g)
        g, = tn.autograd.grad(net[2](net[1](h)).sum(), [net[0].weight], create_graph=True)
        (g * g).sum().backward()
        return g.detach()
    return f


def retained(net, log):
    def f(x):
        h = net[0](x)
        h.retain_grad()
        net[2](net[1](h)).sum().backward()
        return h.grad
    return f


def of_modules(net, log):
    net[0].register_full_backward_hook(lambda module, inputs, outputs: log.append(outputs[0].shape[1]))
    net[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    net[2].register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 3,))
    return lambda x: net(x).sum().backward()


def module_decides(net, log):
    def hook(module, outputs):
        if outputs[0].sum() > 2:
            return (outputs[0] * 3,)
    net[2].register_full_backward_pre_hook(hook)
    return lambda x: (net(x) * x.sum()).sum().backward()


def of_weights(net, log):
    for p in net.parameters():
        p.register_hook(lambda g: tn.clip(g, -0.1, 0.1))
    return lambda x: net(x).sum().backward()


def of_weights_later(net, log):
    def f(x):
        log.append(0)
        net(x).sum().backward()

    def before(number):
        if number == 2:
            f.handle = net[0].weight.register_hook(lambda g: g * 10)
        elif number == 4:
            f.handle.remove()
            net[2].weight.register_hook(lambda g: g * 7)
    f.before = before
    return f


def waits_for_the_sum(net, log):
    net[0].weight.register_post_accumulate_grad_hook(lambda p: log.append(round(float(p.grad.sum()), 3)))
    return lambda x: net(x).sum().backward()


def steps_in_backward(net, log):
    """As PyTorch's tutorial on optimizers in the backward pass."""
    optimizers = {p: tn.optim.Adam([p], lr=0.1) for p in net.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def f(x):
        loss = (net(x) ** 2).sum()
        loss.backward()
        return loss.detach()
    return f


def of_an_argument(net, log):
    def f(x):
        net(x).sum().backward()
        return x.grad
    f.given = lambda x, number: x.requires_grad_().register_hook(lambda g: g * number)
    return f


def left_on_the_tape(net, log):
    def f(x):
        h = net[0](x)
        h.register_hook(lambda g: g * 2)
        return net[2](net[1](h)).sum()
    f.after = lambda out: out.backward()
    return f


def left_though_used(net, log):
    def f(x):
        h = net[0](x)
        h.register_hook(lambda g: g * 2)
        out = net[2](net[1](h)).sum()
        out.backward(retain_graph=True)
        return out
    f.after = lambda out: out.backward()
    return f


def in_a_branch(net, log):
    def f(x):
        h = net[0](x)
        if h.sum() > 0:
            h.register_hook(lambda g: g * 2)
        net[2](net[1](h)).sum().backward()
    return f


def in_a_checkpoint(net, log):
    def first(x):
        h = net[0](x)
        h.register_hook(lambda g: g * 2)
        return net[1](h)
    return lambda x: net[2](tn.checkpoint(first)(x)).sum().backward()


IN_ONE_GRAPH = [scaled, counted, decides, differentiated_twice, retained, of_modules, of_weights, of_weights_later,
                steps_in_backward]
OTHERS = [module_decides, waits_for_the_sum, of_an_argument, left_on_the_tape, left_though_used, in_a_branch,
          in_a_checkpoint]


def outcomes(make, jit):
    """The result, the gradients and what was noted, of some calls; and the function that was called."""
    net, log = network(), []
    f = make(net, log)
    called, found = tn.jit(f) if jit else f, []
    for number, rows in enumerate((3, 3, 3, 3, 5, 2)):
        getattr(f, "before", lambda number: None)(number)
        x = tn.asarray(np.random.default_rng(number).standard_normal((rows, 4)).astype(np.float32))
        getattr(f, "given", lambda x, number: None)(x, number)
        out = called(x)
        getattr(f, "after", lambda out: None)(out)
        gradients = [[] if p.grad is None else p.grad.tolist() for p in net.parameters()]
        found.append(([] if out is None else out.tolist(), gradients, list(log)))
    return found, called


@pytest.mark.parametrize("make", [*IN_ONE_GRAPH, *OTHERS])
def test_hooks_are_called_as_in_eager_code(make):
    want, _ = outcomes(make, False)
    got, f = outcomes(make, True)
    for a, b in zip(want, got, strict=True):
        assert a[2] == b[2]
        for x, y in zip((a[0], *a[1]), (b[0], *b[1]), strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-6)
    if make in IN_ONE_GRAPH and make not in (counted, of_weights_later):        # whose list grows
        assert str(tn.explain(f, tn.ones(2, 4))).startswith(f"{f.__name__}: one graph")
