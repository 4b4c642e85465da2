"""What decides without being an attribute: registrations, protocols, subclasses, names of libraries, streams."""

from __future__ import annotations

import abc
import hashlib
import re
import sys
import types
import typing
import zlib

import numpy as np
import pytest

import tenon as tn


class Kind(abc.ABC):  # noqa: B024
    pass


class Plain:
    pass


@typing.runtime_checkable
class Stepping(typing.Protocol):
    def step(self): ...


def values_of(function, change):
    """The results of ten calls, with the change after the fifth."""
    found = []
    for k in range(10):
        found.append(function(tn.tensor(np.arange(3, dtype=np.float32) + k)).tolist())
        if k == 4:
            change()
    return found


def registered():
    kind, plain = type("Kind", (Kind,), {}), type("Plain", (), {})
    x_of_kind = plain()
    return lambda x: x * (2 if isinstance(x_of_kind, kind) else 1), lambda: kind.register(plain)


def protocol():
    plain = type("Plain", (), {})
    given = plain()
    return lambda x: x * (2 if isinstance(given, Stepping) else 1), lambda: setattr(plain, "step", lambda self: 1)


def subclasses():
    base = type("Base", (), {})
    kept = []
    return lambda x: x * len(base.__subclasses__()), lambda: kept.append(type("Further", (base,), {}))


def absent_in_a_library():
    def change():
        sys._tenon_test = 4
    return lambda x: x * getattr(sys, "_tenon_test", 1), change


def module_with(scale):
    module = types.ModuleType("tenon_test_module")
    module.scale = scale
    sys.modules[module.__name__] = module


def imported_in_the_function():
    def function(x):
        import tenon_test_module
        return x * tenon_test_module.scale
    module_with(2)
    return function, lambda: module_with(5)


def hashed():
    state = hashlib.md5(b"a")

    def function(x):
        state.update(b"b")
        return x * state.digest()[0]
    return function, lambda: state.update(b"c")


def scanned():
    scanner = re.compile(r"\d").scanner("1234567890" * 3)
    return lambda x: x * int(scanner.search().group()), lambda: scanner.search()


def compressed():
    stream = zlib.compressobj()
    return lambda x: x * (1 + len(stream.compress(b"abc" * 30000))), lambda: stream.compress(b"a")


@pytest.mark.parametrize("make", [registered, protocol, subclasses, absent_in_a_library, imported_in_the_function, hashed,
                                  scanned, compressed])
def test_a_change_is_seen(make):
    expected = values_of(*make())
    vars(sys).pop("_tenon_test", None)
    function, change = make()
    try:
        assert values_of(tn.jit(function), change) == expected
        assert expected[5] != expected[4] or make is compressed
    finally:
        vars(sys).pop("_tenon_test", None)
