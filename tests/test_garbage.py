"""Collecting cycles is put off while something is compiled, and comes back in every case."""

import gc
import weakref
from collections.abc import Callable

import pytest

import tenon as tn
from tenon import pipeline
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


def chain(length: int) -> Callable[[tn.Tensor], tn.Tensor]:
    def run(x: tn.Tensor) -> tn.Tensor:
        for k in range(length):
            x = x * x + k
        return x
    return run


def test_memory_is_given_back_once_much_was_compiled(monkeypatch):
    calls = []
    monkeypatch.setattr(pipeline, "give_back", lambda: calls.append(gc.isenabled()))
    tn.jit(chain(3))(tn.ones(3))
    assert not calls
    tn.jit(chain(pipeline.MANY_NODES))(tn.zeros(3))
    assert calls == [True]                  # after the collector ran
