"""The second call with something changed: an argument's kind, a global, a default, a length, a type."""

import copy
import math
import types

from capture.corpus import T, attempt, session

SCALE = 2.0
TABLE = {"scale": 2.0, "nested": {"shift": 1.0}}
SETTINGS = types.SimpleNamespace(scale=2.0, layers=[1.0, 2.0])


def helper(x):
    return x + 1.0


@session
def global_number(jit):
    global SCALE
    f = jit(lambda x: x * SCALE)
    x = T.tensor([1.0, 2.0])
    yield f(x)
    SCALE = 3.0
    yield f(x)
    SCALE = 2.0
    yield f(x)


@session
def global_function(jit):
    global helper
    f = jit(lambda x: helper(x) * 2.0)
    x = T.tensor([1.0, 2.0])
    yield f(x)
    before, helper = helper, lambda x: x - 1.0
    yield f(x)
    helper = before
    yield f(x)


@session
def global_dictionary(jit):
    f = jit(lambda x: x * TABLE["scale"] + TABLE["nested"]["shift"])
    x = T.tensor([1.0, 2.0])
    yield f(x)
    TABLE["nested"]["shift"] = 5.0
    yield f(x)
    TABLE["scale"] = -1.0
    yield f(x)


@session
def namespace_attribute(jit):
    @jit
    def f(x):
        for w in SETTINGS.layers:
            x = x * w
        return x * SETTINGS.scale

    x = T.tensor([1.0, 2.0])
    yield f(x)
    SETTINGS.layers.append(3.0)
    yield f(x)
    SETTINGS.layers = [7.0]
    yield f(x)


@session
def default_argument(jit):
    def g(x, scale=2.0):
        return x * scale

    f = jit(lambda x: g(x))
    x = T.tensor([1.0, 2.0])
    yield f(x)
    g.__defaults__ = (9.0,)
    yield f(x)


@session
def mutable_default_argument(jit):
    @jit
    def f(x, seen=[]):
        seen.append(1)
        return x * len(seen)

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0]))


@session
def code_of_a_function(jit):
    def g(x):
        return x + 1.0

    f = jit(lambda x: g(x))
    x = T.tensor([1.0, 2.0])
    yield f(x)
    g.__code__ = (lambda x: x * 100.0).__code__
    yield f(x)


@session
def kind_of_an_argument(jit):
    f = jit(lambda x, by: x * by if by is not None else x)
    x = T.tensor([1.0, 2.0])
    for by in (2, 2.0, True, None, T.tensor([3.0, 4.0]), 2):
        yield f(x, by)


@session
def keyword_or_position(jit):
    f = jit(lambda x, a=1.0, *, b=2.0: x * a + b)
    x = T.tensor([1.0, 2.0])
    yield f(x), f(x, 3.0), f(x, a=3.0), f(x, b=5.0), f(x, b=5.0, a=3.0)


@session
def number_of_arguments(jit):
    @jit
    def f(*xs, **named):
        total = xs[0] * 0.0
        for x in xs:
            total = total + x
        for name in sorted(named):
            total = total * named[name]
        return total

    x = T.tensor([1.0, 2.0])
    yield f(x), f(x, x), f(x, x, x, scale=2.0), f(x, scale=x, power=3.0)


@session
def length_of_a_list_argument(jit):
    f = jit(lambda xs: sum(xs) * len(xs))
    for n in (1, 3, 2):
        yield f([T.tensor([1.0, 2.0]) for _ in range(n)])


@session
def keys_of_a_dictionary_argument(jit):
    f = jit(lambda d: d["a"] * d.get("b", 2.0))
    x = T.tensor([1.0, 2.0])
    yield f({"a": x}), f({"a": x, "b": x}), f({"b": 5.0, "a": x})
    yield attempt(f, {"b": x})


@session
def element_type(jit):
    f = jit(lambda x: x * 2 + 1)
    yield f(T.tensor([1.0, 2.0])), f(T.tensor([1, 2], "int32")), f(T.tensor([1.5, 2.5]))


@session
def number_of_axes(jit):
    f = jit(lambda x: T.sum(x) + x.shape[0] * len(x.shape))
    yield f(T.tensor([1.0, 2.0])), f(T.tensor([[1.0, 2.0]])), f(T.tensor([[1.0], [2.0]])), f(T.tensor([3.0]))


@session
def branch_taken_by_the_size(jit):
    @jit
    def f(x):
        n = x.shape[0]
        if n > 3:
            return x[:3]
        while n < 3:
            x = T.concat([x, x[:1]])
            n += 1
        return x

    for n in (3, 5, 1, 2, 8):
        yield f(T.tensor([float(k) for k in range(n)]))


@session
def same_tensor_twice(jit):
    f = jit(lambda x, y: (x is y, x + y))
    x, y = T.tensor([1.0, 2.0]), T.tensor([3.0, 4.0])
    yield f(x, y), f(x, x), f(y, x)


@session
def identity_of_a_constant(jit):
    f = jit(lambda x, flag: x * 2.0 if flag is True else x)
    x = T.tensor([1.0, 2.0])
    yield f(x, True), f(x, 1), f(x, False), f(x, True)


@session
def imported_constant(jit):
    f = jit(lambda x: x * math.pi)
    x, before = T.tensor([1.0, 2.0]), math.pi
    yield f(x)
    try:
        math.pi = 3.0
        yield f(x)
    finally:
        math.pi = before
    yield f(x)


@session
def captured_tensor_is_replaced(jit):
    weights = {"w": T.tensor([1.0, 2.0])}
    f = jit(lambda x: x * weights["w"])
    x = T.tensor([1.0, 2.0])
    yield f(x)
    weights["w"] = T.tensor([10.0, 20.0])
    yield f(x)
    weights["w"] = 3.0
    yield f(x)


@session
def layers_added_removed_and_swapped(jit):
    layers = [T.tanh, T.exp]

    @jit
    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    x = T.tensor([0.1, 0.2])
    yield f(x)
    layers.append(T.sin)
    yield f(x)
    layers[0], layers[1] = layers[1], layers[0]
    yield f(x)
    layers.clear()
    yield f(x)


@session
def training_flag(jit):
    class Net:
        training = True

        def __call__(self, x):
            return x * 0.5 if self.training else x

    net = Net()
    f = jit(lambda x: net(x) if T.sum(x) > 0 else net(-x))
    x = T.tensor([1.0, 2.0])
    yield f(x), f(-x)
    net.training = False
    yield f(x), f(-x)
    Net.training = "neither"
    del net.training
    yield f(x), f(-x)


@session
def copy_of_a_model(jit):
    class Net:
        def __init__(self):
            self.scale = 2.0

        def __call__(self, x):
            return x * self.scale

    f = jit(lambda net, x: net(x))
    one = Net()
    two = copy.deepcopy(one)
    two.scale = 5.0
    x = T.tensor([1.0, 2.0])
    yield f(one, x), f(two, x)
    one.scale = 7.0
    yield f(one, x), f(two, x)


@session
def set_of_allowed_words(jit):
    allowed = {"a", "b"}
    f = jit(lambda x, word: x * 2.0 if word in allowed else x)
    x = T.tensor([1.0, 2.0])
    yield f(x, "a"), f(x, "c")
    allowed.add("c")
    yield f(x, "a"), f(x, "c")
    allowed.discard("a")
    yield f(x, "a"), f(x, "c")


@session
def negative_zero_and_nan(jit):
    f = jit(lambda x, c: x / c)
    x = T.tensor([1.0, -1.0])
    yield f(x, T.tensor(0.0)), f(x, T.tensor(-0.0)), f(x, T.tensor(float("nan")))
    g = jit(lambda x, c: x * c)
    yield g(x, 0.0), g(x, -0.0), g(x, float("nan")), g(x, float("inf"))


@session
def error_once_and_then_not(jit):
    limits = [0.5]

    @jit
    def f(x):
        if limits[0] < 1.0:
            raise ValueError("limit too low")
        return x * limits[0]

    x = T.tensor([1.0, 2.0])
    yield attempt(f, x)
    limits[0] = 2.0
    yield attempt(f, x)
    limits[0] = 0.0
    yield attempt(f, x)
