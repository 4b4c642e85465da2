"""Backward on plain arrays: the very gradients that the operators' rules give on tensors."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.eager.gradient_programs import MAX_PROGRAMS, programs
from tenon.eager.vjp_cache import _recorded, elementwise
from tenon.graph.op import OPS
from tenon.ops.arithmetic import add, divide, multiply
from tenon.ops.exponential import exp


def leaves(dtype, count=3, shape=(5,)):
    rng = np.random.default_rng(0)
    return [tn.tensor(rng.uniform(0.5, 2, shape), dtype=dtype, requires_grad=True) for _ in range(count)]


PROGRAMS = {
    "a leaf in many places": lambda x, y, z: ((x * y + x) * x - y / x + z * z * z).sum(),
    "numbers": lambda x, y, z: (2.0 * x - x * 0.5 + 3 / y + (y - 1) ** 2 + z * 0.0 + z * -0.0).sum(),
    "functions": lambda x, y, z: (tn.exp(-x) * tn.tanh(y) + tn.log(z) * tn.sqrt(x) - tn.sin(y) / tn.cos(z)).sum(),
    "choices": lambda x, y, z: (tn.maximum(x, y) * tn.minimum(y, z) + tn.where(x > z, x, y) + tn.abs(z)).sum(),
    "broadcasts": lambda x, y, z: (x * y.sum() + z.mean() * x.reshape(-1, 1) + y[1:3].sum()).sum(),
    "several outputs": lambda x, y, z: sum(part.sum() * k for k, part in enumerate(tn.split(x * y, [1, 3]), 1)) * z.sum(),
    "products": lambda x, y, z: ((x.reshape(1, -1) @ y.reshape(-1, 1)) * z).sum(),
    "a scalar": lambda x, y, z: x.sum() * y.sum() / z.sum() - x.sum(),
    "other types between": lambda x, y, z: (x.astype("float64") * y.astype("float64")).sum() + (z * x).sum(),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_rules(name, dtype):
    given = leaves(dtype)
    PROGRAMS[name](*given).backward()
    expected = tn.autograd.grad(PROGRAMS[name](*given), given, create_graph=True)     # by rules on tensors
    for x, want in zip(given, expected, strict=True):
        assert x.grad.dtype is x.dtype and x.grad.shape == x.shape
        np.testing.assert_array_equal(x.grad.numpy(), want.numpy())


@pytest.mark.parametrize("chosen", [(0, 1, 2), (0,), (2, 1), (0, 0)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_that_are_asked_for_are_those_of_the_rules(name, chosen):
    """Of all leaves, or of some of them; `.grad` is left alone."""
    given = leaves("float32")
    starts = [given[k] for k in chosen]
    expected = tn.autograd.grad(PROGRAMS[name](*given), starts, create_graph=True)    # by rules on tensors
    found = tn.autograd.grad(PROGRAMS[name](*given), starts)
    for ours, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.numpy(), want.numpy())
        assert not ours.requires_grad
    assert all(x.grad is None for x in given)


def test_gradients_of_what_was_computed_are_those_of_the_rules():
    """Of what an operator made, alone, beside a leaf, or beside what it depends on; and of one of several outputs."""
    def found(**options):
        x, y, z = leaves("float32")
        h, (first, second) = x * y, tn.split(z * 2, [2])
        g = h * x
        out = (g * h).sum() * first.sum() + second.sum()
        return [gradient.numpy() for starts in ([h], [x, g], [x, h], [h, y], [first, z], [out], [second])
                for gradient in tn.autograd.grad(out, starts, retain_graph=True, **options)]
    for ours, want in zip(found(), found(create_graph=True), strict=True):
        np.testing.assert_array_equal(ours, want)


def test_several_outputs_are_differentiated_together_with_their_weights():
    x, y, _ = leaves("float32")
    weight = tn.arange(5, dtype=tn.float32)
    found = tn.autograd.grad([(x * y).sum(), x * 3, x * 3], [x, y], [None, weight, weight])
    np.testing.assert_allclose(found[0].numpy(), y.numpy() + 6 * np.arange(5), rtol=1e-6)
    np.testing.assert_array_equal(found[1].numpy(), x.numpy())


def test_what_nobody_asks_for_may_have_no_gradient():
    x, y, _ = leaves("float32")
    noted = []

    def refuse(_, g):
        noted.append(g)
        raise RuntimeError("a gradient that nobody asked for")
    refusing = tn.custom_vjp(lambda y: y * 2)
    refusing.defvjp(lambda y: (y * 2, y), refuse)
    np.testing.assert_array_equal(tn.autograd.grad((x * refusing(y)).sum(), x)[0].numpy(), 2 * y.numpy())
    assert not noted


def test_a_sum_of_gradients_is_nobody_elses():
    x, y, z = leaves("float32")
    total = x + y                       # both have the one gradient of the sum
    (total + y + y + z).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(5))
    np.testing.assert_array_equal(y.grad.numpy(), np.full(5, 3))
    np.testing.assert_array_equal(z.grad.numpy(), np.ones(5))


def test_a_seed_is_left_as_it_is():
    x, y, _ = leaves("float32")
    seed = tn.ones(5)
    out = x + y
    out.backward(seed, retain_graph=True)
    out.backward(seed)
    np.testing.assert_array_equal(seed.numpy(), np.ones(5))
    np.testing.assert_array_equal(x.grad.numpy(), np.full(5, 2))


def test_what_an_operator_saw_counts_not_what_was_assigned_since():
    x, y, _ = leaves("float32")
    before = y.numpy().copy()
    with tn.no_grad():
        other = y * 1
    out = (x * other).sum()
    other += 100
    out.backward()
    np.testing.assert_array_equal(x.grad.numpy(), before)


def test_a_leaf_without_a_gradient_gets_none():
    x, y, z = leaves("float32")
    z.requires_grad = False
    (x * z + y).sum().backward()
    assert z.grad is None and x.grad is not None


def test_only_ufuncs_of_one_type_are_called_directly():
    single, half = np.dtype(np.float32), np.dtype(np.float16)
    assert all(_recorded(multiply, single, [True, True])) and all(_recorded(divide, single, [True, True]))
    assert all(_recorded(exp, single, [True])) and all(_recorded(add, single, [True, True]))
    assert _recorded(multiply, half, [True, True]) is None
    assert _recorded(tn.relu, single, [True]) is None


def test_inside_vmap_and_captures_operators_mean_more_than_values():
    def slope(x):
        x = x.detach()
        x.requires_grad = True
        (x * x * 3.0).sum().backward()
        return x.grad
    x = leaves("float32", 1, (4, 5))[0].detach()
    np.testing.assert_allclose(tn.vmap(slope)(x).numpy(), 6 * x.numpy(), rtol=1e-6)
    np.testing.assert_allclose(tn.jit(slope)(x).numpy(), 6 * x.numpy(), rtol=1e-6)


NETWORKS = {
    "products": lambda x, y, z: (x.reshape(2, 3) @ y.reshape(3, 2)).sum() + (z.reshape(1, 6) @ x).sum(),
    "norms": lambda x, y, z: tn.layer_norm(x.reshape(2, 3), (3,), y[:3], z[:3]).sum() * tn.softmax(y, axis=0).max(),
    "windows": lambda x, y, z: tn.conv1d(x.reshape(1, 1, 6), y[:3].reshape(1, 1, 3), padding=1).sum() * z[0],
    "views": lambda x, y, z: (x[::2] * y[1:4]).sum() + tn.concatenate([z, x], axis=0).reshape(3, 4).T[1].sum(),
    "sorted": lambda x, y, z: (tn.sort(x) * y).sum() + tn.cumsum(z, axis=0)[3] + tn.max(x, axis=0),
    "losses": lambda x, y, z: nn.cross_entropy(x.reshape(2, 3), tn.tensor([0, 2])) + tn.mean((y - z) ** 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_rules_that_are_remembered_give_the_same_gradients(name, dtype):
    given = leaves(dtype, shape=(6,))
    expected = tn.autograd.grad(NETWORKS[name](*given), given, create_graph=True)     # by rules on tensors
    for _ in range(4):                  # by the rule, recorded, as a recipe, as a recipe
        for x in given:
            x.grad = None
        NETWORKS[name](*given).backward()
        for x, want in zip(given, expected, strict=True):
            assert x.grad.dtype is x.dtype and x.grad.shape == x.shape
            np.testing.assert_array_equal(x.grad.numpy(), want.numpy())


def test_a_remembered_rule_is_that_of_the_inputs_which_want_a_gradient():
    x, y, _ = leaves("float32", shape=(2, 2))
    for wants in (True, True, True, False, False, False, True):
        fixed = y if wants else y.detach()
        x.grad = y.grad = None
        (x @ fixed).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.ones((2, 2), "f") @ y.numpy().T)
        assert (y.grad is not None) == wants


def test_rules_of_users_are_called_each_time():
    calls = []

    def backward(x, g):
        calls.append(float(x[0]))
        return (g * 2,)
    double = tn.custom_vjp(lambda x: x * 2)
    double.defvjp(lambda x: (x * 2, x), backward)
    for k in range(4):
        x = tn.tensor([float(k)], requires_grad=True)
        double(x).sum().backward()
        assert x.grad.numpy()[0] == 2
    assert calls == [0.0, 1.0, 2.0, 3.0]


def test_rules_that_are_asked_for_anew_take_the_place_of_those_before(machine_code):
    """So that there is room for those of other numbers, however often machine code was given."""
    op, dtype = OPS["exp"], np.dtype("float32")
    for _ in range(MAX_PROGRAMS + 1):
        programs.follow()
        elementwise[op, dtype]
    words = programs.words[op]
    elementwise[op, np.dtype("float64")]
    assert programs.words[op] is not words


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_a_change_in_place_that_is_not_recorded_cuts_no_history(wrap):
    """As in PyTorch: the elements are the new ones, the gradient that of what they were computed by."""
    def product(x):
        y = x * x
        z = y * 3
        with tn.no_grad():
            y[0] = 5.0
            y *= 2
        return (y * z).sum()
    assert wrap(tn.grad(product))(tn.tensor([1.0, 2.0])).tolist() == [66.0, 144.0]
