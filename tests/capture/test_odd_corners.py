"""Odd corners of Python: what is one graph, and what runs with graph breaks, does what eager code does."""

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import operator
from types import SimpleNamespace

import pytest

import tenon as tn
from capture.both import VECTORS, check, vector
from tenon import nn


def nonlocal_in_a_loop(x):
    n = 0

    def bump(v):
        nonlocal n
        if v > 0:
            n += 1
        return v * n
    s = 0.0
    for v in x:
        s = s + bump(v)
    while s > 1 and n < 6:
        s = bump(s) / 4
    return s, n


def generator_with_send(x):
    def averager():
        total, n, mean = 0.0, 0, None
        while True:
            v = yield mean
            total, n = total + v, n + 1
            mean = total / n
    mean = averager()
    next(mean)
    for v in x:
        found = mean.send(v if v > 0 else v * 2)
    return found


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return kind is ValueError


def swallowing_context(x):
    y = x
    with Swallow():
        y = x + 1
        if x.sum() > 0:
            raise ValueError("no")
        y = x + 2
    with contextlib.suppress(KeyError):
        y = y * {"a": 2}["b" if y.ndim else "a"]
    return y


def zip_of_unequal_lengths(x):
    out = 0.0
    for a, b in zip(x, [1.0, 2.0], strict=False):
        out = out + a * b if a > 0 else out
    for a, b in itertools.zip_longest(x[:2], (1, 2, 3), fillvalue=0.0):
        out = out + a * b
    try:
        for a, _ in zip(x, [1], strict=True):
            out = out + a
    except ValueError:
        out = out + 100
    return out


def star_arguments(x):
    def f(*args, scale=1, **others):
        return sum(args) * scale if len(args) > 1 and args[0] > 0 else others.get("other", 0)
    rest = list(x)
    return f(*rest, scale=2), f(*rest[:1], other=x), f(other=x[0]), (lambda a, *b: a if b[0] > 0 else b)(*rest)


def while_with_else(x):
    n = 0
    while x.sum() < 10:
        x = x + 1
        n += 1
        if n > 4:
            break
    else:
        return x, "ended"
    return x, n


def return_through_finally(x):
    log = []

    def f(v):
        for k in range(4):
            try:
                if v > k:
                    return v * k
                if k == 2:
                    continue
            finally:
                log.append(k)
        return v
    return f(x.sum()), f(x[0]), log


def recursion_on_a_tensor(x):
    def steps(n, depth=0):
        return depth if n < 2 or depth > 5 else steps(n / 2 if n % 2 < 1 else n * 3 + 1, depth + 1)
    return steps(x.abs().max())


def for_with_else(x):
    for i, v in enumerate(x, start=1):
        if v < 0:
            found = i
            break
    else:
        found = -1
    return found * x


def containers_of_the_library(x):
    groups, counts = collections.defaultdict(list), collections.Counter()
    for v in x:
        groups["p" if v.ndim == 0 else "n"].append(v)
        counts["a"] += 1
    joined = (*groups["p"], x.sum())
    a, (b, *rest) = joined[0], joined[1:]
    return a, b, rest, counts["a"], next(reversed(joined)) if x[0] > 0 else sorted([3, 1])


def chained_comparisons(x):
    s = x.sum()
    return 0 < s < 5, not 0 < s < 5, (s > 0) == (x[0] > 0), (s > 0 and x[0] > 0) or x[1] > 0, x if -1 < s <= 2 else -x


def exceptions_of_several_kinds(x):
    try:
        if x[0] > 0:
            raise KeyError("k")
        y = x + 1
    except KeyError:
        y = x * 2
    except (ValueError, TypeError):
        y = x
    else:
        y = y + 1
    finally:
        z = 1
    return y, z


ONE_GRAPH = (nonlocal_in_a_loop, generator_with_send, swallowing_context, zip_of_unequal_lengths, star_arguments,
             while_with_else, return_through_finally, recursion_on_a_tensor, for_with_else, containers_of_the_library,
             chained_comparisons, exceptions_of_several_kinds)


@dataclasses.dataclass
class Box:
    x: object
    scale: float = 2.0
    doubled: object = dataclasses.field(init=False)

    def __post_init__(self):
        self.doubled = self.x * 2 if self.x.sum() > 0 else self.x

    @property
    def norm(self):
        return self._norm if hasattr(self, "_norm") else self.x.sum()

    @norm.setter
    def norm(self, v):
        self._norm = v if v > 0 else -v


def dataclass_with_post_init_and_setter(x):
    box = Box(x)
    if x[0] > 0:
        box.norm = x[0]
    else:
        box.norm = x[1]
    return box.doubled, box.norm, dataclasses.replace(box, scale=3.0).scale


class Vector:
    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __mul__(self, k):
        return Vector(self.t * k) if self.t.sum() > 0 else Vector(self.t * -k)

    def __lt__(self, other):
        return bool(self.t.sum() < other.t.sum())

    def __getitem__(self, i):
        return self.t[i] if self.t[i] > 0 else -self.t[i]

    def __contains__(self, v):
        return bool((self.t == v).any())

    def __iter__(self):
        return iter(self.t)


def overloaded_operators(x):
    v, w = Vector(x), Vector(x * 2)
    total = sum([v, w, v * 2])
    return total.t, v < w, v[0], 3.0 in v, min(v, w).t, list(v)


def match_on_structures(x):
    def kind(p):
        match p:
            case (a, b) if a.sum() > 0:
                return a + b
            case {"k": v, **rest}:
                return v * len(rest)
            case [first, *others] if first > 0:
                return first + len(others)
            case int() | float():
                return p
            case _:
                return None
    return kind((x, x)), kind({"k": x, "z": 1}), kind([x[0], x[1], x[2]]), kind(3), kind("s")


def a_word_that_the_data_choose(x):
    name = "up" if x.sum() > 0 else "down"
    table = {"up": x, "down": -x}
    return table[name], name == "up", name


def membership_of_a_number(x):
    n = int((x > 0).sum())
    return n in (1, 2), n not in [3], "abc"[n % 3], [1, 2, 3][:n], range(n + 1)[-1], divmod(n, 2)


def folded_by_partial_functions(x):
    def clipped(low, high, v):
        return x[0] * low if v < low else x[0] * high if v > high else v
    f = functools.partial(clipped, -1.0, 1.0)
    return functools.reduce(operator.mul, [f(v=v) for v in x])


def classes_within_the_function(x):
    best = x

    class Base:
        scale = 2

        def __init__(self, v):
            self.v, self.__turns = v, 0

        @property
        def total(self):
            return self.v.sum() if self.v[0] > 0 else self.v.sum() * 2

        @classmethod
        def make(cls, v):
            return cls(v + 1 if v[1] > 0 else v)

        def halved(self):
            while self.v.sum() > 1:
                self.v, self.__turns = self.v * 0.5, self.__turns + 1
            return self.v * self.scale

        def turns(self):
            return self.__turns

    class Derived(Base):
        def halved(self):
            nonlocal best
            found = super().halved()
            if found.sum() > best.sum():
                best = found
            return found if found.sum() > 0 else found - 1
    made = Derived.make(x)
    return made.halved(), made.total, made.turns(), best


def words_as_keys(x):
    counts, rows = {"up": 0, "down": 0}, {"up": [], "down": []}
    for v in x:
        word = "up" if v > 0 else "down"
        counts[word] += 1
        rows[word].append(v)
    name = "sin" if x[0] > 0 else "cos"
    return counts, rows, {"sin": x * 2, "cos": -x}[name], name


def a_word_that_is_no_key(x):
    table = {"up": 1.0}
    word = "up" if x.sum() > 0 else "down"
    try:
        return table[word] * x
    except KeyError:
        return x - 1


def words_as_keys_of_what_does_more(x):
    counts, rows = collections.Counter(), collections.defaultdict(list)
    for v in x:
        word = "up" if v > 0 else "down"
        counts[word] += 1
        rows[word].append(v)
    return dict(counts), dict(rows)


class Asked:
    """Counts how often it is asked whether it is true."""

    def __init__(self):
        self.asked, self.value = 0, True

    def __bool__(self):
        self.asked += 1
        return self.value


def python_asks_twice():
    """Whether this Python asks `obj` twice in `(obj and 1) or 2`, as some of 3.12 and 3.13 do (python/cpython#124285)."""
    obj = Asked()
    obj.value = False
    (obj and 1) or 2
    return obj.asked > 1


class Uncounted(Asked):
    def __bool__(self):
        return self.value


def asked_once_in_a_conditional_expression(obj, x):
    y = 3.0 if (obj and 5.0) else 4.0
    return x * y if x.sum() > 0 else x - y


def asked_once_in_an_operand(obj, x):
    y = (obj and x[0] > 0 and obj and 3.0) or 1.0
    obj.value = not obj.value
    z = (obj and obj and obj) or 2.0
    w = (obj or 2.0) or 7.0
    return x * y, z is obj, w is obj


def asked_once_in_a_condition(obj, x):
    if (obj and x[0] > 0) or (not obj and x[1] > 0):
        return x
    n = 0
    while (obj or n < 2) and n < 4 and x.sum() < 9:
        n, x = n + 1, x + 1
    if not (obj and obj):
        return x * 3
    return x * 2 if (x[0] < 0 and obj and x[2] > 1) else x * n


def values_of_operands_that_are_asked(obj, x):
    p = (x.sum() > 5 and (obj or 2.0)) or 7.0
    q = (obj and (0 or obj)) or 1.0
    r = obj and (obj or 3)
    return p is obj, q is obj, r is obj, x


def asked_once_in_a_comprehension(obj, x):
    return [v for v in x if obj and v > 0], 1 if x.sum() > 0 else 2


ASKED = (asked_once_in_a_conditional_expression, asked_once_in_an_operand, asked_once_in_a_condition,
         values_of_operands_that_are_asked, asked_once_in_a_comprehension)


def gradient_kept_by_a_tensor_made_inside(x):
    y = x.detach().requires_grad_()
    (y * y if x.sum() > 0 else y).sum().backward()
    return y.grad, [y, y], y.requires_grad


def copies_where_python_needs_an_element(x):
    y = copy.deepcopy([x, {"a": x}])
    y[0][0] = x.tolist()[1]
    return x, y, copy.copy(x)


def a_number_or_a_tensor(x):
    s = 2.0
    if x.sum() > 0:
        s = x.max()
    t = s * 3.0
    return t, t + 0.1, 2 - t, -s, s ** 2, abs(s), s > 1, s * x


def a_number_or_a_tensor_in_a_loop(x):
    s, n = 0.1, 0
    for v in x:
        if v > 0:
            s = v
            n += 1
        s = s / 3
    return s, n, s * n


def a_number_or_a_tensor_is_asked(x):
    s = x[0] if x.sum() > 0 else 0.0
    t = s + 1
    if t > 1:
        t = t * 2
    return (t or 5.0), bool(s), isinstance(t, float), max(t, 0.5), x[0] * t


KINDS = (a_number_or_a_tensor, a_number_or_a_tensor_in_a_loop, a_number_or_a_tensor_is_asked)

BY_PART = (copies_where_python_needs_an_element, dataclass_with_post_init_and_setter, overloaded_operators,
           match_on_structures, words_as_keys_of_what_does_more, membership_of_a_number, folded_by_partial_functions, *KINDS)


@pytest.mark.parametrize("function", (*ONE_GRAPH, classes_within_the_function, a_word_that_the_data_choose,
                                      words_as_keys, a_word_that_is_no_key,
                                      gradient_kept_by_a_tensor_made_inside), ids=lambda f: f.__name__)
def test_one_graph(function):
    check(function)


def test_a_tensor_made_inside_keeps_its_gradient():
    @tn.jit(fullgraph=True)
    def f(x):
        y = x.detach().requires_grad_()
        (y * y).sum().backward()
        return y, y.grad
    for _ in range(3):
        y, gradient = f(tn.tensor([1.0, 2.0]))
        assert y.grad is gradient
        assert gradient.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("function", BY_PART, ids=lambda f: f.__name__)
def test_right_with_graph_breaks_or_in_one_graph(function):
    check(function, fullgraph=False)


@pytest.mark.parametrize("function", ASKED, ids=lambda f: f.__name__)
def test_a_condition_asks_as_often_as_python_does(function):
    check(function, make=Uncounted if function is asked_once_in_an_operand and python_asks_twice() else Asked)


def test_an_operand_is_asked_once():
    obj = Asked()
    tn.jit(asked_once_in_an_operand, fullgraph=True)(obj, vector(*VECTORS[0]))
    assert obj.asked == 4


class Scaled(nn.Parameter):
    """A parameter with an attribute of the user's, which its method reads."""

    def scaled(self):
        return self * self.factor


@pytest.mark.parametrize("given", [False, True])
def test_an_attribute_of_a_tensor_is_read_anew(given):
    w = Scaled([1.0, 2.0])
    f = tn.jit((lambda w, x: w.scaled() * x) if given else (lambda x: w.scaled() * x))
    for factor in (1.0, 1.0, 3.0, 2.0):
        w.factor = factor
        out = f(w, tn.ones(2)) if given else f(tn.ones(2))
        assert out.tolist() == [factor, 2.0 * factor]


def test_a_tensor_with_another_attribute_is_another_argument():
    f = tn.jit(lambda w: w.scaled())
    for factor in (1.0, 2.0, 3.0):
        w = Scaled([1.0])
        w.factor = factor
        assert f(w).tolist() == [factor]


@pytest.mark.parametrize("function", [
    lambda x: int(x.sum()).sum(), lambda x: float(x.sum()).shape, lambda x: hasattr(x.sum().item(), "mean"),
    lambda x: type(x.shape[0]), lambda x: range(3 if x.sum() > 0 else 2)[-1], lambda x: x.sum().item().is_integer()])
def test_numbers_and_sizes_are_pythons_own(function):
    def outcome(of, x):
        try:
            return repr(of(x))
        except AttributeError as error:
            return str(error)
    jitted = tn.jit(function)
    for x in (tn.ones(2), -tn.ones(3), tn.ones(4)):
        assert outcome(jitted, x) == outcome(function, x)
    assert "a bug of Tenon" not in str(tn.explain(jitted))


def test_a_library_that_refuses_a_number_of_the_graph_is_no_bug():
    def function(x):
        y = tn.tanh(x) * 2 + x.mean()
        line = json.dumps({"mean": float(y.mean())})
        return (y * y).sum(), line
    jitted = tn.jit(function)
    for k in range(4):
        x = tn.tensor([float(k), 1.0, 2.0])
        assert jitted(x)[0].tolist() == pytest.approx(function(x)[0].tolist(), rel=1e-6)
        assert json.loads(jitted(x)[1])["mean"] == pytest.approx(json.loads(function(x)[1])["mean"], rel=1e-6)
    told = str(tn.explain(jitted))
    assert "a library refuses what only the graph knows: TypeError" in told and "a bug of Tenon" not in told


def test_bytes_that_become_more_or_fewer_are_put_back():
    def function(held, x):
        held.memory.append(len(held.memory) + 65)
        del held.memory[:-3]
        return x * held.memory[-1], bytes(held.memory)
    check(function, fullgraph=False, make=lambda: SimpleNamespace(memory=bytearray(b"ab")))


def test_hasattr_asks_a_getattr_of_ones_own_once():
    class Asked:
        def __init__(self):
            self.known, self.asked = {"a": 1.0}, []

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            self.asked.append(name)
            return self.known[name]

    def step(holder, x):
        if x.sum() > 0:
            x = x + 1
        return x * holder.a if hasattr(holder, "a") else x

    check(step, make=Asked)


class Opened:
    def __init__(self):
        self.log = []

    @contextlib.contextmanager
    def part(self, k):
        self.log.append(("open", k))
        try:
            yield k
        finally:
            self.log.append(("closed", k))

    def items(self):
        try:
            yield 1.0
        finally:
            self.log.append("closed")


def in_a_stack(opened, x, k):
    with contextlib.ExitStack() as stack:
        for i in range(k):
            x = x + stack.enter_context(opened.part(i))
        return x


def around_a_condition(opened, x, k):
    items = opened.items()
    k += next(items)
    if x.sum() > 0:
        x = x + k
    items.close()
    return x


@pytest.mark.parametrize("function", [in_a_stack, around_a_condition])
def test_generators_that_an_attempt_leaves_are_ended_with_it(function):
    check(function, [([1.0, 2.0], 1), ([1.0, 2.0], 2), ([1.0, -2.0], 3)], make=Opened, fullgraph=False)


def test_what_functions_and_classes_are_called_is_guarded():
    class Layer:
        """One."""
        rate: float

        def __call__(self, x):
            return x * 2

    def described(f, x):
        return f(x), type(f).__name__, type(f).__doc__, sorted(type(f).__annotations__), f.__call__.__func__.__name__

    layer, jitted = Layer(), tn.jit(described, fullgraph=True)
    for change in (lambda: None, lambda: setattr(Layer, "__name__", "Other"), lambda: setattr(Layer, "__doc__", "Two."),
                   lambda: Layer.__annotations__.update(more=int), lambda: None,
                   lambda: setattr(Layer.__call__, "__name__", "called")):
        change()
        for _ in range(3):
            assert repr(jitted(layer, tn.ones(2))) == repr(described(layer, tn.ones(2)))
