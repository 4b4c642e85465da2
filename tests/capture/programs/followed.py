"""What users can change, wherever it stands: in namespaces, views, caches, members, classes, builtins."""

# ruff: noqa: F821, F841, B023, E731, C408, C405, SIM115, SIM105, RUF005, RUF012, PERF401, B007

import array
import builtins
import collections
import configparser
import copy
import ctypes
import dataclasses
import enum
import functools
import logging
import operator
import threading
import types

import numpy as np

from capture.corpus import T, session


def vector(*numbers):
    """A tensor of these numbers."""
    return T.tensor([float(x) for x in numbers])


FMT = "{0.lr}|{1.name}"


@session
def objects_in_a_namespace(jit):
    cfg = types.SimpleNamespace(inner=types.SimpleNamespace(k=1.0), hooks=[lambda x: x + 1])
    f = jit(lambda x: cfg.hooks[0](x) * cfg.inner.k)

    def run():
        out = [f(vector(1)).tolist()]
        cfg.inner.k = 3.0
        out.append(f(vector(1)).tolist())
        cfg.hooks[0] = lambda x: x + 10
        out.append(f(vector(1)).tolist())
        cfg.inner = types.SimpleNamespace(k=7.0)
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def fields_read_by_asdict(jit):
    @dataclasses.dataclass
    class Inner:
        k: float = 1.0

    @dataclasses.dataclass
    class Cfg:
        inner: Inner
        ks: list

    cfg = Cfg(Inner(), [1.0, 2.0])
    f = jit(lambda x: x * dataclasses.asdict(cfg)["inner"]["k"] + sum(dataclasses.astuple(cfg)[1]))

    def run():
        out = [f(vector(1)).tolist()]
        cfg.inner.k = 4.0
        out.append(f(vector(1)).tolist())
        cfg.ks.append(9.0)
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def fields_read_by_replace(jit):
    @dataclasses.dataclass
    class Cfg:
        k: float = 1.0
        b: float = 2.0

    cfg = Cfg()
    f = jit(lambda x: x * dataclasses.replace(cfg, b=5.0).k)

    def run():
        out = [f(vector(1)).tolist()]
        cfg.k = 4.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def attributes_copied(jit):
    class Box:
        pass

    o = Box()
    o.k = 1.0
    o.n = Box()
    o.n.z = 2.0
    f = jit(lambda x: x * copy.copy(o).k * copy.deepcopy(o).n.z)

    def run():
        out = [f(vector(1)).tolist()]
        o.k = 4.0
        out.append(f(vector(1)).tolist())
        o.n.z = 5.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def names_within_a_getter(jit):
    class Box:
        pass

    o = Box()
    o.k = 1.0
    o.m = Box()
    o.m.q = 3.0
    key = operator.attrgetter("m.q")
    call = operator.methodcaller("get", 2)

    class P(Box):
        def get(self, n):
            return self.w * n

    p = P()
    p.w = 1.0
    f = jit(lambda x: x * key(o) + call(p))

    def run():
        out = [f(vector(1)).tolist()]
        o.m.q = 4.0
        out.append(f(vector(1)).tolist())
        p.w = 5.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def names_within_a_format(jit):
    class Box:
        pass

    o = Box()
    o.lr = 1.0
    o.name = "a"
    seen = []
    f = jit(lambda x: (seen.append(FMT.format(o, o)), x * 2)[1])

    def run():
        out = []
        for v in (1.0, 2.0, 2.0, 3.0):
            o.lr = v
            f(vector(1))
            out.append(list(seen))
        return out

    yield run()


@session
def attributes_of_members(jit):
    class E(enum.Enum):
        A = 1
        B = 2

    E.A.scale = 2.0
    f = jit(lambda x: x * E.A.scale * getattr(E.B, "scale", 1.0))

    def run():
        out = [f(vector(1)).tolist()]
        E.A.scale = 3.0
        out.append(f(vector(1)).tolist())
        E.B.scale = 10.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def state_of_a_thread(jit):
    loc = threading.local()
    loc.k = 2.0

    def g(x):
        loc.n = getattr(loc, "n", 0) + 1
        return x * loc.k

    f = jit(g)

    def run():
        out = [(f(vector(1)).tolist(), loc.n)]
        loc.k = 3.0
        out.append((f(vector(1)).tolist(), loc.n))
        out.append((f(vector(1)).tolist(), loc.n))
        del loc.n
        out.append((f(vector(1)).tolist(), loc.n))
        return out

    yield run()


@session
def event_is_cleared(jit):
    ev = threading.Event()
    ev.set()

    def g(x):
        if ev.is_set():
            ev.clear()
            return x * 2
        return x

    f = jit(g)

    def run():
        out = [(f(vector(1)).tolist(), ev.is_set())]
        out.append((f(vector(1)).tolist(), ev.is_set()))
        ev.set()
        out.append((f(vector(1)).tolist(), ev.is_set()))
        out.append((f(vector(1)).tolist(), ev.is_set()))
        return out

    yield run()


@session
def semaphore_is_counted_down(jit):
    sem = threading.Semaphore(2)
    f = jit(lambda x: x * 2 if sem.acquire(blocking=False) else x * 0)
    yield [f(vector(1)).tolist() for _ in range(4)]


@session
def views_of_dictionaries(jit):
    view = types.MappingProxyType({"a": [1.0, 2.0]})
    base = {"k": 1.0}
    v2 = types.MappingProxyType(base)
    f = jit(lambda x: x * sum(view["a"]) * v2["k"] * v2.get("z", 1.0))

    def run():
        out = [f(vector(1)).tolist()]
        view["a"].append(3.0)
        out.append(f(vector(1)).tolist())
        base["k"] = 2.0
        out.append(f(vector(1)).tolist())
        base["z"] = 5.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def objects_in_an_array(jit):
    class Box:
        k = 1.0

    os_ = [Box(), Box()]
    arr = np.array([[os_[0]], [os_[1]]], dtype=object)
    f = jit(lambda x: x * arr[1, 0].k)

    def run():
        out = [f(vector(1)).tolist()]
        os_[1].k = 5.0
        out.append(f(vector(1)).tolist())
        n = Box()
        n.k = 9.0
        arr[1, 0] = n
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def bases_are_assigned(jit):
    class A:
        def k(self):
            return 1.0

    class B:
        def k(self):
            return 2.0

    class C(A):
        pass

    class D(C):
        pass

    d = D()
    f = jit(lambda x: x * d.k())

    def run():
        out = [f(vector(1)).tolist()]
        C.__bases__ = (B,)
        out.append(f(vector(1)).tolist())
        d.__class__ = type("Z", (A,), {})
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def builtin_is_another(jit):
    f = jit(lambda x: x * len([1, 2]) * abs(-2))

    def run():
        out = [f(vector(1)).tolist()]
        old = builtins.abs
        try:
            builtins.abs = lambda v: 100
            out.append(f(vector(1)).tolist())
        finally:
            builtins.abs = old
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def name_among_the_builtins(jit):
    f = jit(lambda x: x * GAIN)

    def run():
        out = []
        for v in (1.0, 2.0):
            builtins.GAIN = v
            out.append(f(vector(1)).tolist())
        globals()["GAIN"] = 7.0
        out.append(f(vector(1)).tolist())
        del globals()["GAIN"]
        out.append(f(vector(1)).tolist())
        del builtins.GAIN
        try:
            f(vector(1))
            out.append("no")
        except NameError as e:
            out.append(str(e))
        return out

    yield run()


@session
def factory_of_a_defaultdict(jit):
    d = collections.defaultdict(list)

    def g(x):
        d["n"].append(1)
        return x * len(d["n"])

    f = jit(g)

    def run():
        out = [f(vector(1)).tolist() for _ in range(3)]
        d.clear()
        out.append(f(vector(1)).tolist())
        d.default_factory = lambda: [1, 1, 1]
        d.clear()
        out.append(f(vector(1)).tolist())
        d.default_factory = None
        d.clear()
        try:
            f(vector(1))
            out.append("no")
        except KeyError as e:
            out.append(repr(e))
        return out

    yield run()


@session
def globals_are_deleted(jit):
    ns = {"K": 1.0, "L": 2.0}
    exec("def g(x):\n    global K, L\n    K = K + 1\n    del L\n    return x*K\n", ns)
    g = jit(ns["g"])

    def call():
        try:
            return g(vector(1)).tolist()
        except NameError as e:
            return str(e)

    yield (call(), call(), ns.__setitem__("L", 1), call(), ns["K"], "L" in ns)


@session
def attribute_is_deleted(jit):
    class Box:
        pass

    o = Box()
    o.k = 1.0

    def g(x):
        del o.k
        return x

    f = jit(g)

    def call():
        try:
            return f(vector(1)).tolist()
        except AttributeError as e:
            return str(e)

    yield (call(), call(), setattr(o, "k", 1), call(), hasattr(o, "k"))


@session
def logger_that_is_silent(jit):
    lg = logging.getLogger("quiet")
    lg.setLevel(logging.ERROR)
    f = jit(lambda x: (lg.info("x"), lg.debug("y %s", x.shape), x * 2)[2])
    yield [f(vector(k)).tolist() for k in (1, 2, 3)]


@session
def chain_of_dictionaries(jit):
    cm = collections.ChainMap({"a": 1.0}, {"b": 2.0})
    f = jit(lambda x: x * cm["a"] * cm["b"])

    def run():
        out = [f(vector(1)).tolist()]
        cm.maps[1]["b"] = 3.0
        out.append(f(vector(1)).tolist())
        cm["b"] = 4.0
        out.append(f(vector(1)).tolist())
        cm.maps.insert(0, {"a": 10.0})
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def content_of_user_containers(jit):
    ud = collections.UserDict(k=1.0)
    ul = collections.UserList([1.0])

    def g(x):
        ul.append(2.0)
        return x * ud["k"] * len(ul)

    f = jit(g)

    def run():
        out = [f(vector(1)).tolist()]
        ud["k"] = 2.0
        out.append(f(vector(1)).tolist())
        out.append(f(vector(1)).tolist())
        out.append(list(ul))
        return out

    yield run()


@session
def options_of_a_parser(jit):
    cp = configparser.ConfigParser()
    cp.read_string("[a]\nk=2.0\n")
    f = jit(lambda x: x * cp.getfloat("a", "k"))

    def run():
        out = [f(vector(1)).tolist()]
        cp.set("a", "k", "5.0")
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def property_of_a_metaclass(jit):
    class Meta(type):
        k = 1.0

        @property
        def q(cls):
            return cls.k * 2

    class A(metaclass=Meta):
        pass

    f = jit(lambda x: x * A.q)

    def run():
        out = [f(vector(1)).tolist()]
        Meta.k = 4.0
        out.append(f(vector(1)).tolist())
        A.k = 7.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def attribute_made_up_on_demand(jit):
    class A:
        def __getattr__(self, n):
            return 3.0

    a = A()
    f = jit(lambda x: x * a.foo)

    def run():
        out = [f(vector(1)).tolist()]
        a.foo = 5.0
        out.append(f(vector(1)).tolist())
        A.foo = 1.0
        del a.foo
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def slot_is_filled_later(jit):
    class A:
        __slots__ = ("k", "z")

    a = A()
    a.k = 1.0
    f = jit(lambda x: x * a.k * getattr(a, "z", 1.0))

    def run():
        out = [f(vector(1)).tolist()]
        a.k = 2.0
        out.append(f(vector(1)).tolist())
        a.z = 5.0
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def function_in_a_registry(jit):
    reg = {}

    def register(n):
        return lambda fn: reg.setdefault(n, fn)

    @register("a")
    def fa(x):
        return x * 2

    f = jit(lambda x: reg["a"](x))

    def run():
        out = [f(vector(1)).tolist()]
        reg["a"] = lambda x: x * 5
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def implementation_is_registered(jit):
    @functools.singledispatch
    def k(v):
        return 1.0

    f = jit(lambda x: x * k(3))

    def run():
        out = [f(vector(1)).tolist()]
        k.register(int)(lambda v: 9.0)
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def keywords_of_a_partial(jit):
    pm = functools.partial(lambda x, k: x * k, k=2.0)
    f = jit(lambda x: pm(x))

    def run():
        out = [f(vector(1)).tolist()]
        pm.keywords["k"] = 3.0
        out.append(f(vector(1)).tolist())
        pm.__setstate__((pm.func, (), {"k": 8.0}, {}))
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def number_of_ctypes(jit):
    c = ctypes.c_int(1)
    f = jit(lambda x: x * c.value)

    def run():
        out = [f(vector(1)).tolist()]
        c.value = 4
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def items_of_an_array(jit):
    arr = array.array("d", [1.0, 2.0])
    mv = memoryview(bytearray(b"\x01\x02"))
    f = jit(lambda x: x * arr[1] * mv[0])

    def run():
        out = [f(vector(1)).tolist()]
        arr[1] = 3.0
        out.append(f(vector(1)).tolist())
        mv[0] = 5
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def queue_order_and_counter(jit):
    dq = collections.deque([1.0], maxlen=2)
    oc = collections.OrderedDict(a=1.0, b=2.0)
    ct = collections.Counter("aab")

    def g(x):
        dq.append(ct["a"])
        oc.move_to_end("a")
        ct["a"] += 1
        return x * sum(dq) * list(oc.values())[0]

    f = jit(g)
    yield [(f(vector(1)).tolist(), list(dq), list(oc), dict(ct)) for _ in range(3)]
