"""Collecting cycles is put off while something is compiled, and comes back in every case."""

import gc
import weakref

import pytest

import tenon as tn
from tenon.garbage import collected_at_the_end


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_made_inside_are_gone_at_the_end():
    with collected_at_the_end():
        made = weakref.ref(Cycle())
    assert made() is None


def test_the_last_of_several_brings_collecting_back():
    with collected_at_the_end():
        with collected_at_the_end():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_brings_collecting_back():
    with pytest.raises(ValueError, match="inside"), collected_at_the_end():
        raise ValueError("inside")
    assert gc.isenabled()


def test_who_does_not_collect_is_left_alone():
    gc.disable()
    try:
        tn.jit(lambda x: x * 2 + 1)(tn.ones(3))
        assert not gc.isenabled()
    finally:
        gc.enable()
