"""How many threads compile at once, and who waits for whom."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from time import monotonic, sleep
from types import SimpleNamespace

import pytest

from tenon.backends.cpu import kernel_compiler
from tenon.backends.cpu.kernel_compiler import Places


class Compiling:
    """Threads that take a place each, and keep it until they are told to go on."""

    def __init__(self, places: Places, pool: ThreadPoolExecutor, count: int):
        self.places, self.go_on, self.inside = places, Event(), 0
        self.all = [pool.submit(self.compile) for _ in range(count)]

    def compile(self) -> None:
        with self.places:
            self.inside += 1
            self.go_on.wait(60)
            self.inside -= 1

    def settled(self, least: int) -> int:
        """How many have a place, once so many do, and others had the time to take one."""
        deadline = monotonic() + 60
        while self.inside < least and monotonic() < deadline:
            sleep(0.001)
        wait(self.all, timeout=0.1)
        return self.inside


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_core_is_left_to_who_makes_kernels_until_it_waits_for_them(threads: int, monkeypatch) -> None:
    monkeypatch.setattr(kernel_compiler, "config", lambda: SimpleNamespace(threads=threads))
    places = Places()
    with ThreadPoolExecutor(4) as pool:
        compiling = Compiling(places, pool, 4)
        fewer = max(1, threads - 1)
        assert compiling.settled(fewer) == fewer
        with places.one_more():
            assert compiling.settled(threads) == threads
            compiling.go_on.set()
            done, _ = wait(compiling.all, timeout=60)
    assert len(done) == 4 and compiling.inside == 0


def test_who_fails_gives_its_place_back(monkeypatch) -> None:
    monkeypatch.setattr(kernel_compiler, "config", lambda: SimpleNamespace(threads=1))
    places = Places()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), places:
            1 / 0
        with pytest.raises(ZeroDivisionError), places.one_more():
            1 / 0
    with places:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_child_has_the_places_that_threads_of_its_parent_took() -> None:
    with kernel_compiler._places:
        child = os.fork()
        if not child:
            with kernel_compiler._places:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
