"""Functions written as Python that says their instructions do what that Python would do."""

import ctypes
import sys
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenon.llvm import function_builder, machine_code
from tenon.llvm.code_cache import CodeCache
from tenon.llvm.function_builder import NativeModule
from tenon.llvm.ir_values import BOOLEAN, HALF, NOTHING, POINTER, WORD

I64, ADDRESS = ctypes.c_int64, ctypes.c_void_p
CALLBACK = ctypes.CFUNCTYPE(I64, I64, I64)


def largest(f, words, count):
    found = f.variable(0)
    with f.each(count) as k, f.where(words.word(k) > found()):
        found.set(words.word(k))
    f.give(found())


def first_of(f, words, count, wanted):
    """Where it is; the count where it is not."""
    with f.each(count) as k, f.where(words.word(k) == wanted):
        f.give(k)
    f.give(count)


def halvings(f, n):
    """How often a power of two is halved before it is 1; zero for zero."""
    f.require(n != 0)
    power, turns = f.variable(1), f.variable(0)
    with f.loop(lambda: power() < n):
        power.set(power() * 2)
        turns.set(turns() + 1)
    f.give(turns())


def is_among(f, words, count, wanted):
    f.give(f.call("first_of", words, count, wanted) != count)


def differs(f, words):
    """Of a word, an address, two halves, a field: whether one is not what it is by another way."""
    there = words.pointer(1)
    right = (there == words.behind(8).pointer()) & (words.word() == words.pointer().word_of()) & (
        there.half() + there.half(4) * (1 << 32) == there.word()) & (words.field(8) == there) & ~there.is_null()
    with f.unless(right):
        f.give(1)
    f.give()


def count_up(f, words, turns):
    """Half of a word that several threads add to; the other half becomes 7 where it was 5, by one of them."""
    count, other = words.shared(), words.shared(4)
    with f.each(turns):
        count.add(1)
    with f.where(other.replace(5, 7) != 0):
        words.shared(8).add(1)
    words.shared(12).set(3)
    f.give()


def fold(f, table, words, count):
    """The function at the table's first word, from zero over all words; written to the table's second."""
    found = f.variable(0)
    with f.each(count) as k:
        found.set(f.through(table, WORD, found(), words.word(k)))
    table.put(found(), 1)
    f.give()


def all_of_them():
    module = NativeModule()
    module.define("largest", largest, WORD, POINTER, WORD, public=True)
    module.define("first_of", first_of, WORD, POINTER, WORD, WORD, public=True)
    module.define("halvings", halvings, WORD, WORD, public=True)
    module.define("is_among", is_among, BOOLEAN, POINTER, WORD, WORD, public=True)
    module.define("differs", differs, HALF, POINTER, public=True)
    module.define("count_up", count_up, NOTHING, POINTER, WORD, public=True)
    module.define("fold", fold, NOTHING, POINTER, POINTER, WORD, public=True)
    return module


LIBRARY = function_builder.library("test", module_of=all_of_them)
WORDS = st.lists(st.integers(0, 2**63 - 1), max_size=20).map(lambda xs: np.array(xs, np.int64))


def function(name, result, *kinds):
    return ctypes.CFUNCTYPE(result, *kinds)(LIBRARY.address(name))


@given(WORDS)
def test_a_loop_keeps_what_it_sets(words):
    got = function("largest", I64, ADDRESS, I64)(words.ctypes.data, len(words))
    assert got == max(words, default=0)


@given(WORDS, st.integers(0, 20), st.integers(0, 2**63 - 1))
def test_a_loop_may_return_from_its_middle(words, place, other):
    wanted = int(words[place]) if place < len(words) else other
    found = list(words).index(wanted) if wanted in words else len(words)
    assert function("first_of", I64, ADDRESS, I64, I64)(words.ctypes.data, len(words), wanted) == found
    among = function("is_among", ctypes.c_bool, ADDRESS, I64, I64)
    assert among(words.ctypes.data, len(words), wanted) == (wanted in words)


@pytest.mark.parametrize("n, times", [(0, 0), (1, 0), (2, 1), (1024, 10), (2**40, 40)])
def test_a_loop_goes_on_as_long_as_it_is_so(n, times):
    assert function("halvings", I64, I64)(n) == times


def test_memory_is_read_as_words_halves_and_addresses():
    there = np.array([(7 << 32) + 5], np.int64)
    words = np.array([3, there.ctypes.data], np.int64)
    assert function("differs", ctypes.c_int32, ADDRESS)(words.ctypes.data) == 0


def test_threads_share_halves_of_words():
    halves = np.array([0, 5, 0, 0], np.int32)
    run = function("count_up", None, ADDRESS, I64)
    threads = [Thread(target=run, args=(halves.ctypes.data, 100_000)) for _ in range(3)]
    for step in Thread.start, Thread.join:
        for thread in threads:
            step(thread)
    assert list(halves) == [300_000, 7, 1, 3]


@pytest.mark.skipif(sys.platform == "win32", reason="has no such function by this name")
def test_functions_that_take_any_number_of_arguments_are_called():
    def shown(f, into, text, x):
        f.give(f.call("snprintf", into, 32, text, x, f.word(7)))
    module = NativeModule()
    module.declare("snprintf", HALF, POINTER, WORD, POINTER, more=True)
    module.define("shown", shown, HALF, POINTER, POINTER, WORD, public=True)
    library, into = machine_code.compile(str(module)), ctypes.create_string_buffer(32)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ADDRESS, ctypes.c_char_p, I64)(library.address("shown"))
    assert run(ctypes.addressof(into), b"%lld of %lld", 3) == 6 and into.value == b"3 of 7"


def test_what_an_address_says_is_called():
    words = np.array([5, 2, 3], np.int64)
    less = CALLBACK(lambda x, y: x * 10 - y)
    table = np.array([ctypes.cast(less, ADDRESS).value, 0], np.int64)
    function("fold", None, ADDRESS, ADDRESS, I64)(table.ctypes.data, words.ctypes.data, len(words))
    assert table[1] == (-5 * 10 - 2) * 10 - 3


def test_what_is_on_disk_is_not_written_again(tmp_path, monkeypatch):
    cache = CodeCache(tmp_path)
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    asked = []

    def module_of(added):
        asked.append(added)
        module = NativeModule()
        module.define("more", lambda f, x: f.give(x + added), WORD, WORD, public=True)
        return module

    def more(added, x):
        library = function_builder.library("more", added, module_of=module_of)
        return ctypes.CFUNCTYPE(I64, I64)(library.address("more"))(x)
    assert [more(1, 5), more(2, 5), more(1, 7)] == [6, 7, 8]
    assert asked == [1, 2]
