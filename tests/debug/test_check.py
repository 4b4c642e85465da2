"""`tn.debug.check`: the operation that first makes a bad number in compiled code, and nothing is changed."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.debug import BadNumber
from tenon.errors import ArgumentError
from tenon.observe import subscribe


class Net(nn.Module):
    def __init__(self):
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, low):
        hidden = tn.relu(self.fc1(x))
        logs = tn.log(hidden + low)
        return self.fc2(logs)


def training_step():
    net = Net()
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    @tn.jit
    def step(x, y, low):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x, low), y)
        loss.backward()
        optimizer.step()
        return loss
    return net, step


def test_the_operation_and_its_line_are_named_and_the_step_has_changed_nothing():
    net, step = training_step()
    x, y, fine, bad = tn.randn(5, 8), tn.tensor(np.array([0, 1, 2, 3, 0])), tn.tensor(0.1), tn.tensor(-0.5)
    for _ in range(3):              # the first call finds no gradients, and later ones do
        step(x, y, fine)
    before = [p.numpy().copy() for p in net.parameters()]
    heard = []
    stop = subscribe(lambda event: heard.append(event.name))
    try:
        with tn.debug.check(step), pytest.raises(BadNumber, match=r"log: makes a NaN") as caught:
            step(x, y, bad)
    finally:
        stop()
    assert "tn.log(hidden + low)" in str(caught.value) and "from add at test_check.py" in str(caught.value)
    assert all(np.array_equal(p.numpy(), old) for p, old in zip(net.parameters(), before, strict=True))
    assert not {"capture", "compile", "machine_code", "lower"} & set(heard)
    assert np.isnan(step(x, y, bad).numpy())        # without it


def test_a_step_without_bad_numbers_is_as_it_was():
    checked, plain = training_step(), training_step()
    for p, q in zip(checked[0].parameters(), plain[0].parameters(), strict=True):
        q.assign(p)
    x, y, low = tn.randn(5, 8), tn.tensor(np.array([0, 1, 2, 3, 0])), tn.tensor(0.1)
    for k in range(6):
        if k % 2:
            one = checked[1](x, y, low)
        else:
            with tn.debug.check(checked[1], range=(-1e6, 1e6)):
                one = checked[1](x, y, low)
        assert np.array_equal(one.numpy(), plain[1](x, y, low).numpy())
    for p, q in zip(checked[0].parameters(), plain[0].parameters(), strict=True):
        assert np.array_equal(p.numpy(), q.numpy())


def test_a_gradient_names_the_line_that_it_is_the_gradient_of():
    @tn.jit
    def slope(x):
        w = x.detach().requires_grad_(True)
        root = tn.sqrt(w)
        root.sum().backward()
        return w.grad
    with tn.debug.check(slope), pytest.raises(BadNumber, match="in the gradient") as caught:
        slope(tn.tensor([1.0, 0.0, 4.0]))
    assert "root = tn.sqrt(w)" in str(caught.value)


def test_the_program_of_a_gradient_that_is_asked_for_outside_is_checked_too():
    root = tn.jit(lambda x: tn.sqrt(x).sum())
    x = tn.tensor([1.0, 0.0], requires_grad=True)
    with tn.debug.check(root):
        y = root(x)
        with pytest.raises(BadNumber):
            y.backward()


def test_infinities_that_are_handed_on_are_not_made():
    masked = tn.jit(lambda x: tn.where(x > 0, x, -float("inf")) * 1.0)
    with tn.debug.check(masked):
        assert np.isinf(masked(tn.tensor([1.0, -1.0])).numpy()[1])
    large = tn.jit(lambda x: tn.exp(x))
    with tn.debug.check(large, inf=False):
        large(tn.tensor([100.0]))
    with tn.debug.check(large), pytest.raises(BadNumber, match="exp: makes an inf"):
        large(tn.tensor([100.0]))


def test_a_range_is_one_that_numbers_must_not_leave():
    f = tn.jit(lambda x: x * 3.0)
    with tn.debug.check(f, range=(-10.0, 10.0)):
        f(tn.tensor([2.0]))
        with pytest.raises(BadNumber, match="outside of -10 to 10"):
            f(tn.tensor([5.0]))
    with pytest.raises(ArgumentError), tn.debug.check(f, range=(1.0, 0.0)):
        pass


@pytest.mark.parametrize("size", [3, 20_000])       # a kernel of its own, and steps
def test_in_a_loop_the_turn_that_makes_it_ends_the_call(size):
    @tn.jit
    def shrink(x):
        while x.sum() > -1e9:
            x = tn.sqrt(x - 1.0) - 1.0
        return x
    with tn.debug.check(shrink), pytest.raises(BadNumber, match="sqrt: makes a NaN"):
        shrink(tn.full((size,), 9.0))


def test_only_jitted_functions_are_compiled():
    with pytest.raises(ArgumentError, match=r"check takes a function with @tn\.jit"), tn.debug.check(len):
        pass


def test_a_nan_in_what_is_given_is_told_where_it_comes_to_a_result():
    net, step = training_step()
    x, y, low = tn.randn(5, 8), tn.tensor(np.array([0, 1, 2, 3, 0])), tn.tensor(0.1)
    bad = x.numpy().copy()
    bad[2, 3] = np.nan
    before = [p.numpy().copy() for p in net.parameters()]
    for _ in range(3):
        with tn.debug.check(step), pytest.raises(BadNumber, match="x holds a NaN when the call begins"):
            step(tn.tensor(bad), y, low)
    assert all(np.array_equal(p.numpy(), old) for p, old in zip(net.parameters(), before, strict=True))
    step(tn.tensor(bad), y, low)
    with tn.debug.check(step), pytest.raises(BadNumber, match=r"net\.fc1\.weight holds a NaN"):
        step(x, y, low)
    cleaned = tn.jit(lambda x: tn.nan_to_num(x * 2).sum())
    with tn.debug.check(cleaned):
        cleaned(tn.tensor(bad))


@pytest.mark.parametrize("cut", [False, True])
def test_steps_on_several_devices_are_checked_on_each_and_changed_nothing(cut):
    tn.set_devices(2)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    mesh = tn.distributed.Mesh({"data": 2})

    def step(x, k):
        hidden = tn.relu(net[0](x))
        if cut:
            hidden, k = hidden.to("cpu:1"), k.to("cpu:1")
        loss = tn.log(net[2](hidden) ** 2 * k).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    if cut:
        net[2].to("cpu:1")
    jitted = tn.jit(step, mesh=None if cut else mesh)
    x = tn.randn(4, 8) if cut else tn.distributed.shard(tn.randn(4, 8), mesh, ("data", None))
    with tn.debug.check(jitted):
        assert np.isfinite(float(jitted(x, tn.tensor(1.0)).detach()))
    before = [p.numpy().copy() for p in net.parameters()]
    for _ in range(2):
        with tn.debug.check(jitted), pytest.raises(BadNumber, match="log: makes an inf, in"):
            jitted(x, tn.tensor(0.0))
    assert all(np.array_equal(p.numpy(), old) for p, old in zip(net.parameters(), before, strict=True))
    with tn.debug.check(jitted, repeatable=True), pytest.raises(ArgumentError, match="functions on one device"):
        jitted(x, tn.tensor(1.0))
    assert np.isfinite(float(jitted(x, tn.tensor(1.0)).detach()))
