"""Objects of equal structure share a capture: models, instances, functions; and a jitted function keeps none alive."""

# ruff: noqa: B023  (the function is called within the turn)

import functools
import gc
import weakref

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

X = np.array([1.5, -2.25, 3.0], np.float32)


def made(function):
    """How many captures were made, for whatever objects."""
    return sum(family.captures for family in function.families.values())


def has_graph_breaks(function):
    return [str(record.eager or record.full) for record in function.records.values() if record.eager or record.full]


class Scaled:
    def __init__(self, k, bias=None):
        self.w, self.n = tn.full((3,), float(k)), 0
        self.bias = bias

    def apply(self, x):
        self.n += 1
        out = x * self.w
        return out if self.bias is None else out + self.bias


def test_instances_of_a_class():
    objects = [Scaled(k) for k in range(40)]
    f = tn.jit(Scaled.apply)
    for turn in range(3):
        for k, s in enumerate(objects):
            assert f(s, tn.asarray(X)).tolist() == (X * k).tolist()
            assert s.n == turn + 1
    assert made(f) <= 3 and not has_graph_breaks(f)


def test_a_jitted_method():
    class Own(Scaled):
        @tn.jit
        def __call__(self, x):
            self.n += 1
            self.last = x * self.w
            return self.last + self.n
    for k in range(20):
        s = Own(k)
        for turn in range(3):
            assert s(tn.asarray(X)).tolist() == (X * k + turn + 1).tolist()
            assert s.last.tolist() == (X * k).tolist() and s.n == turn + 1
    assert made(Own.__call__) <= 3


def test_models_with_gradients_and_optimizers_of_their_own():
    def network():
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))

    def step(net, opt, x):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    jitted = tn.jit(step)
    for k in range(6):
        pair = []
        for _ in range(2):
            tn.manual_seed(k)
            net = network()
            pair.append((net, optim.SGD(net.parameters(), lr=0.1, momentum=0.9)))
        (a, opt_a), (b, opt_b) = pair
        for turn in range(4):
            x = tn.asarray(np.random.default_rng(turn).normal(size=(5, 3)).astype(np.float32))
            np.testing.assert_allclose(jitted(a, opt_a, x).numpy(), step(b, opt_b, x).numpy(), rtol=1e-4, atol=1e-6)
        for (name, p), (_, q) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
            np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    assert made(jitted) <= 3 and not has_graph_breaks(jitted)


def test_what_differs_in_structure_is_a_capture_of_its_own():
    f = tn.jit(lambda net, x: net(x))
    x = tn.asarray(np.ones((2, 3), np.float32))
    nets = [nn.Linear(3, 2), nn.Linear(3, 2, bias=False), nn.Linear(3, 4), nn.Linear(3, 2).eval(),
            nn.Sequential(nn.Linear(3, 2), nn.Tanh()), nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
            nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).eval()]
    nets[0].weight.requires_grad_(False)
    for _ in range(3):
        for net in [*nets[:6], nets[7]]:
            want, got = net(x), f(net, x)
            assert got.requires_grad is want.requires_grad
            np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert not has_graph_breaks(f)


def test_weights_that_are_tied_are_told_from_those_that_are_not():
    def function(pair, x):
        a, b = pair.parts
        a.w.assign(a.w + x)
        return b.w * 1

    class Pair:
        def __init__(self, *parts):
            self.parts = parts
    f = tn.jit(function)
    for k in range(6):
        a, b = Scaled(k), Scaled(10)
        if k % 2:
            b.w = a.w
        assert f(Pair(a, b), tn.ones(3)).tolist() == [k + 1.0 if k % 2 else 10.0] * 3


GLOBAL = Scaled(100)


def test_an_object_that_is_a_global_too():
    def function(s, x):
        GLOBAL.n = 7
        s.n = s.n + 1
        return x * s.w * (2 if s is GLOBAL else 1)
    f = tn.jit(function)
    for s in (Scaled(1), GLOBAL, Scaled(2), GLOBAL, Scaled(3)):
        assert f(s, tn.ones(3)).tolist() == [float(s.w[0]) * (2 if s is GLOBAL else 1)] * 3
        assert s.n == (8 if s is GLOBAL else 1)
        s.n = 0


def test_numbers_that_differ_between_objects_are_inputs():
    f = tn.jit(Scaled.apply)
    for k in range(20):
        assert f(Scaled(2, bias=k / 8), tn.asarray(X)).tolist() == (X * 2 + k / 8).tolist()
    assert made(f) <= 3


def test_other_plain_values_are_guarded():
    class Named(Scaled):
        def apply(self, x):
            return x * len(self.name)
    f = tn.jit(Named.apply)
    for name in ("a", "bb", "a", "ccc", "bb"):
        s = Named(1)
        s.name = name
        assert f(s, tn.asarray(X)).tolist() == (X * len(name)).tolist()
        s.name = "four"
        assert f(s, tn.asarray(X)).tolist() == (X * 4).tolist()
        del s.name
        with pytest.raises(AttributeError):
            f(s, tn.asarray(X))
    assert made(f) <= 4


def test_an_attribute_or_a_patch_that_only_one_has():
    class Optional(Scaled):
        def apply(self, x):
            return x * getattr(self, "extra", 1.0) + self.more()

        def more(self):
            return 1.0
    f = tn.jit(Optional.apply)
    for k in range(6):
        s = Optional(1)
        if k % 3 == 1:
            s.extra = 3.0
        if k % 3 == 2:
            s.more = lambda: 5.0
        assert f(s, tn.asarray(X)).tolist() == s.apply(tn.asarray(X)).tolist(), k


def test_containers_of_an_object():
    class Bag:
        def __init__(self, *items):
            self.items, self.table = list(items), {"a": items[0], "n": len(items)}

        def total(self, x):
            self.table["last"] = x + self.table["a"]
            return sum(self.items, x) * self.table["n"]
    f = tn.jit(Bag.total)
    for k in range(12):
        bag = Bag(*(tn.full((3,), float(k + n)) for n in range(2 + k % 2)))
        want = Bag.total(bag, tn.asarray(X))
        del bag.table["last"]
        assert f(bag, tn.asarray(X)).tolist() == want.tolist()
        assert bag.table["last"].tolist() == (X + k).tolist()
    assert made(f) <= 4


# ---------------------------------------------------------------- in places outside

class Trainer:
    pass


def test_a_model_that_is_swapped_for_another_of_equal_structure():
    trainer = Trainer()

    @tn.jit
    def f(x):
        return trainer.net(x).sum()
    for k in range(10):
        tn.manual_seed(k)
        trainer.net = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        for _ in range(3):
            got, want = f(tn.asarray(X)), trainer.net(tn.asarray(X)).sum()
            assert float(got) == pytest.approx(float(want), rel=1e-5)
        got.backward()
        assert trainer.net[0].weight.grad is not None
    assert made(f) == 1
    trainer.net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert float(f(tn.asarray(X))) == pytest.approx(float(trainer.net(tn.asarray(X)).sum()), rel=1e-5)
    assert made(f) == 2


def test_objects_and_functions_that_are_swapped():
    trainer, objects = Trainer(), [Scaled(k) for k in range(4)]
    trainer.act = None
    f = tn.jit(lambda x: trainer.act(trainer.part.apply(x)))
    for k in range(12):
        trainer.part, trainer.act = objects[k % 4], lambda v: v + 1
        assert f(tn.asarray(X)).tolist() == (X * (k % 4) + 1).tolist()
        assert trainer.part.n == k // 4 + 1
    assert made(f) <= 3
    trainer.act = lambda v: v + 2
    assert f(tn.asarray(X)).tolist() == (X * 3 + 2).tolist()


def test_one_object_that_comes_into_two_places():
    trainer, a, b = Trainer(), Scaled(1), Scaled(2)

    @tn.jit
    def f(x):
        trainer.left.w.assign(trainer.left.w + x)
        return trainer.right.w * 1
    for left, right, expected in ((a, b, 2.0), (b, a, 2.0), (a, a, 3.0), (b, b, 4.0), (a, b, 4.0)):
        trainer.left, trainer.right = left, right
        assert f(tn.ones(3)).tolist() == [expected] * 3


# ---------------------------------------------------------------- functions

def test_lambdas_of_equal_code():
    f = tn.jit(lambda x, g: g(x))
    for _ in range(40):
        assert f(tn.asarray(X), lambda v: v * 2).tolist() == (X * 2).tolist()
    assert made(f) <= 2         # once the first is gone, they are opened


def test_lambdas_that_keep_different_values():
    f = tn.jit(lambda x, g: g(x))

    def times(a, b=1):
        return lambda v, c=b: v * a + c
    for k in range(20):
        assert f(tn.asarray(X), times(k)).tolist() == (X * k + 1).tolist()
    assert made(f) <= 3
    for text in ("ab", "abc", "ab"):
        assert f(tn.asarray(X), lambda v, text=text: v * len(text)).tolist() == (X * len(text)).tolist()
    weight = [tn.full((3,), float(k)) for k in range(10)]
    before = made(f)
    for w in weight:
        assert f(tn.asarray(X), (lambda w: lambda v: v * w)(w)).tolist() == (X * float(w[0])).tolist()
    assert made(f) <= before + 1


def test_bound_methods_and_partials():
    f = tn.jit(lambda x, g: g(x))
    for k in range(10):
        s = Scaled(k)
        for turn in range(3):
            assert f(tn.asarray(X), s.apply).tolist() == (X * k).tolist()
            assert s.n == turn + 1
    assert made(f) <= 3
    before = made(f)
    for k in range(10):
        scaled = functools.partial(lambda w, v: v * w, tn.full((3,), float(k)))
        assert f(tn.asarray(X), scaled).tolist() == (X * k).tolist()
    assert made(f) <= before + 3


def test_functions_of_equal_code_and_other_globals():
    f = tn.jit(lambda x, g: g(x))
    code = compile("def g(v): return v * K", "<made>", "exec")
    for k in (2.0, 3.0, 2.0, 5.0):
        scope = {"K": k}
        exec(code, scope)
        assert f(tn.asarray(X), scope["g"]).tolist() == (X * k).tolist()


# ---------------------------------------------------------------- memory

def test_models_die_when_the_user_drops_them():
    f, refs = tn.jit(lambda net, x: net(x)), []
    for _ in range(8):
        net = nn.Linear(3, 3)
        refs += [weakref.ref(net), weakref.ref(net.weight)]
        for _ in range(5):
            f(net, tn.ones((1, 3)))
        del net
    gc.collect()
    assert [ref() for ref in refs] == [None] * 16
    assert not f.records and not f._fast_calls


def test_objects_with_state_die_too():
    f, refs = tn.jit(Scaled.apply), []
    for k in range(8):
        s = Scaled(k)
        refs.append(weakref.ref(s))
        for _ in range(20):
            f(s, tn.asarray(X))
        del s
    gc.collect()
    assert [ref() for ref in refs] == [None] * 8


def test_an_object_in_the_place_of_one_that_died():
    f = tn.jit(Scaled.apply)
    for k in range(200):        # whose identities are used again
        s = Scaled(k)
        assert f(s, tn.asarray(X)).tolist() == (X * k).tolist()
        del s
    assert made(f) <= 3


@pytest.mark.parametrize("make", [lambda k: (lambda x: x * k), lambda k: nn.Linear(2, 2)])
@pytest.mark.parametrize("read", [lambda parts, x: sum((part(x) for part in parts), tn.zeros(2)),
                                  lambda parts, x: parts[-1](x)])
def test_a_list_of_other_objects_that_is_longer(make, read):
    """Where a capture was bound to other objects in a list, its length was taken for what it was to be."""
    parts = []
    jitted, x = tn.jit(lambda x: read(parts, x)), tn.ones(2)
    for count in (2, 3, 4, 2, 1, 3):
        parts[:] = map(make, range(1, count + 1))
        assert np.allclose(jitted(x).numpy(), read(parts, x).numpy()), count
