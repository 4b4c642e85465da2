"""Everything that can be called, and everything that can be an argument: jitted as it is eagerly, or a clear error."""

import collections
import contextlib
import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, CaptureError

X = tn.asarray(np.arange(1, 4, dtype=np.float32))


def power(x, n):
    return x if n == 0 else x * power(x, n - 1)


@tn.jit
def jitted_power(x, n):
    return x if n == 0 else x * jitted_power(x, n - 1)


class Scaled:
    k = 2.0

    def __call__(self, x):
        return x * self.k

    def method(self, x):
        return x * self.k

    @tn.jit
    def jitted(self, x):
        return x * self.k

    @staticmethod
    @tn.jit
    def static(x):
        return x * 2

    @tn.jit
    @staticmethod
    def static_inside(x):
        return x * 2

    @classmethod
    @tn.jit
    def of_class(cls, x):
        return x * cls.k

    @tn.jit
    @classmethod
    def of_class_inside(cls, x):
        return x * cls.k

    @property
    @tn.jit
    def value(self):
        return X * self.k


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **keywords):
        return function(*args, **keywords)
    return wrapper


@contextlib.contextmanager
def factor():
    yield 2.0


def with_block(x):
    with factor() as k:
        return x * k


def from_text():
    scope = {"tn": tn}
    exec("def f(x):\n    return tn.tanh(x) * 2", scope)
    return scope["f"]


SCALED = Scaled()
CALLS = {
    "partial": lambda j: j(functools.partial(lambda k, x: x * k, 2.0))(X),
    "callable object": lambda j: j(SCALED)(X),
    "bound method": lambda j: j(SCALED.method)(X),
    "decorated": lambda j: j(decorated(power))(X, 2),
    "decorated with lru_cache": lambda j: j(functools.lru_cache(lambda x: x * 2))(X),
    "singledispatch": lambda j: j(functools.singledispatch(lambda x: x * 2))(X),
    "from exec": lambda j: j(from_text())(X),
    "from eval": lambda j: j(eval("lambda x: x * 2"))(X),
    "recursion": lambda j: j(power)(X, 5),
    "jit in jit": lambda j: j(j(lambda x: x * 2))(X),
    "an operator": lambda j: j(tn.exp)(X),
    "a built-in": lambda j: j(sum)([X, X]),
    "*args, **keywords": lambda j: j(lambda *a, k=1.0, **kw: sum(a) * k + kw["z"])(X, X, k=2.0, z=X),
    "keywords in another order": lambda j: [f(b=X * 2, a=X) for f in [j(lambda a, b: a - b)] if f(a=X, b=X) is not None],
    "defaults": lambda j: j(lambda x, k=2.0: x * k)(X),
    "context manager": lambda j: j(with_block)(X),
    "generator inside": lambda j: j(lambda x: sum(x * k for k in range(3)))(X),
    "iterating": lambda j: j(lambda x: [y * 2 for y in x])(X),
    "grad": lambda j: tn.grad(j(lambda x: (x * x).sum()))(X),
    "grad in jit": lambda j: j(tn.grad(j(lambda x: (x * x).sum())))(X),
    "vmap": lambda j: tn.vmap(j(lambda x: x * 2))(X),
    "the text of a tensor": lambda j: [f(x) for f in [j(lambda x: f"{x}")] for x in (X, X * 2)],
    "a set of tensors": lambda j: [[t.tolist() for t in f(x)] for f in [j(lambda x: {x * 2})] for x in (X, X * 2)],
    "a new object": lambda j: [f(x).args[0] for f in [j(lambda x: functools.partial(power, x * 2))] for x in (X, X * 2)],
    "a new function": lambda j: [f(x)() for f in [j(lambda x: lambda: x * 2)] for x in (X, X * 2)],
    "nothing": lambda j: [j(lambda x: None)(X), j(lambda: tn.ones(2))(), j(lambda x: 3)(X)],
}


def plain(tree: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return [plain(x) for x in tree]
    return tree.tolist() if isinstance(tree, tn.Tensor) else tree


def close(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    return abs(a - b) < 1e-4 * max(1, abs(b)) if isinstance(a, float) else a == b


@pytest.mark.parametrize("name", CALLS)
def test_what_can_be_called(name):
    assert close(plain(CALLS[name](tn.jit)), plain(CALLS[name](lambda f: f)))


def test_methods_of_every_kind():
    s = Scaled()
    for out in (s.jitted(X), Scaled.static(X), s.static(X), s.static_inside(X), Scaled.of_class(X), s.of_class(X),
                s.of_class_inside(X), s.value, jitted_power(X, 0) * 2):
        assert out.tolist() == [2, 4, 6]


def generator(x):
    yield x


async def coroutine(x):
    return x


async def async_generator(x):
    yield x


@pytest.mark.parametrize("function", [generator, coroutine, async_generator])
def test_what_has_no_single_result_is_refused(function):
    with pytest.raises(ArgumentError, match=f"{function.__name__} is a generator or a coroutine"):
        tn.jit(function)


@pytest.mark.parametrize(("call", "message"), [
    (lambda f: f(X), "missing 1 required positional argument"), (lambda f: f(X, X, X), "takes 2 positional arguments"),
    (lambda f: f(X, z=1), "unexpected keyword argument")])
def test_wrong_arguments_are_pythons_own_error(call, message):
    with pytest.raises(TypeError, match=message):
        call(tn.jit(lambda x, y: x))


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Batch:
    a: Any
    b: Any = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: float = dataclasses.field(default=1.0, init=False)


def test_named_tuples_and_dataclasses():
    pair = tn.jit(lambda p: Pair(p.a + p.b, p.b))(Pair(X, X))
    assert type(pair) is Pair and pair.a.tolist() == [2, 4, 6]
    batch = tn.jit(lambda p: Batch(p.a * p.b, p.b))(Batch(X, 3.0))
    assert type(batch) is Batch and batch.a.tolist() == [3, 6, 9] and batch.b == 3.0
    assert tn.jit(lambda p: p.a * p.b)(Frozen(X)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("make", "change"), [
    (lambda: [X], lambda p: p.append(p[0] * 2)), (lambda: {"a": X}, lambda p: p.update(z=p["a"] * 2)),
    (lambda: Batch(X), lambda p: setattr(p, "b", p.a * 2)), (lambda: [[X], X], lambda p: p[0].clear()),
], ids=["list", "dict", "dataclass", "nested"])
def test_a_container_that_the_function_changes(make, change):
    f = tn.jit(lambda p: change(p))
    for _ in range(2):
        eager, jitted = make(), make()
        change(eager)
        f(jitted)
        assert repr(jitted) == repr(eager)


def test_large_and_deep_containers():
    assert tn.jit(lambda xs: sum(xs[:10]))([X] * 5000).tolist() == [10, 20, 30]
    assert tn.jit(lambda x, ks: x * sum(ks))(X, [1.0] * 50_000).tolist() == [50_000, 100_000, 150_000]
    deep: Any = X
    for _ in range(5000):
        deep = [deep]
    cycle: list[Any] = [X]
    cycle.append(cycle)
    for argument, refusal in ((deep, "nested too deep"), (cycle, "contains itself")):
        assert tn.jit(lambda x: x)(argument) is argument        # with graph breaks, as eager code has it
        with pytest.raises(CaptureError, match=refusal):
            tn.jit(lambda x: x, fullgraph=True)(argument)


@pytest.mark.parametrize("body", [lambda x: np.unwrap(x), lambda x: x.tolist(), lambda x: sorted(x)[0]])
def test_python_that_needs_a_value_runs_with_graph_breaks_or_is_refused_at_its_line(body):
    assert np.array_equal(tn.jit(body)(X), body(X))
    with pytest.raises(CaptureError, match="needs the value of a tensor") as caught:
        tn.jit(body, fullgraph=True)(X)
    assert caught.value.where.file == __file__ and caught.value.hint


def test_a_failed_capture_leaves_no_tensor_of_its_own_behind():
    leaked = []

    @tn.jit
    def g(x):
        def inside():
            leaked.append(x * 2)
            raise ValueError("mine")
        return inside()
    with pytest.raises(ValueError, match="mine"):
        g(X)
    assert [x.tolist() for x in leaked] == [[2, 4, 6]] and (X * 2).tolist() == [2, 4, 6]


def test_a_missing_comma_is_pythons_own_error(tmp_path):
    source = "import tenon as tn\n@tn.jit\ndef f(x):\n    return tn.concat([x x])\n"
    with pytest.raises(SyntaxError) as caught:
        compile(source, str(tmp_path / "user.py"), "exec")
    assert type(caught.value) is SyntaxError and caught.value.lineno == 4 and "comma" in caught.value.msg


def test_infinite_recursion_is_pythons_own_error():
    @tn.jit
    def f(x):
        return f(x + 1)
    with pytest.raises(RecursionError):
        f(X)
    assert tn.jit(lambda x: x + 1)(X).tolist() == [2, 3, 4]
