"""TENON_SHOW prints what it names, as it happens."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

import tenon as tn
from tenon.config import SHOWABLE
from tenon.debug.show import LINES, TIMED, WITHIN, show
from tenon.observe import subscribe

EXPECTED = {
    "graph": "def <lambda>" , "loops": "# kernel", "llvm": "define void", "asm": ".text", "time": "# time: capture",
    "memory": "MB between kernels", "guards": "nodes; tn.explain", "fallbacks": "",
    "recompiles": "word is 'b', and was 'a'",
}


def test_every_word_has_lines():
    assert set(LINES) == set(SHOWABLE) == set(EXPECTED)


@pytest.mark.parametrize("word", SHOWABLE)
def test_a_word_prints_its_lines_and_no_others(word):
    seen: list[str] = []
    stop = show({word}, seen.append)
    try:
        tn.jit(lambda x: tn.exp(x) * 1.375 + tn.sum(x))(tn.ones(3))
        again = tn.jit(lambda x, word: x * 1.375)
        for text in "ab":
            again(tn.ones(3), text)
    finally:
        stop()
    text = "".join(seen)
    assert EXPECTED[word].replace("<lambda>", "") in text
    assert bool(text) == bool(EXPECTED[word])


def test_the_plan_of_memory_says_what_lies_where_and_who_needs_it():
    seen: list[str] = []
    stop = show({"memory"}, seen.append)
    try:
        tn.jit(lambda x: tn.tanh(x @ x).sum(axis=1).reshape(-1, 1) @ x[:1])(tn.ones((300, 300)))
    finally:
        stop()
    head, largest, *_ = "".join(seen).splitlines()
    assert re.fullmatch(r"# memory: .*: 0\.4 MB between kernels, at least 0\.4 \(0\.\d% above\)", head)
    assert re.match(r"# memory: +0\.360 MB at +0\.000: matmul.* \(test_show.py:\d+\) to .*sum.* \(test_show.py:\d+\)", largest)


def test_the_times_of_a_first_call_are_parts_of_it():
    """Lines that are not indented come one after the other; those that are, within the next of these."""
    events = []
    stop = subscribe(events.append)
    try:
        tn.jit(lambda x: tn.exp(x) * 1.625 + tn.sum(x))(tn.ones(3))
    finally:
        stop()
    whole = [event for event in events if event.name in TIMED]
    assert [event.name for event in whole] == list(TIMED)
    assert all(x.start + x.seconds <= y.start for x, y in pairwise(whole))
    for part in (event for event in events if event.name in WITHIN):
        later = next(x for x in whole if x.start + x.seconds >= part.start + part.seconds)
        assert later.start <= part.start


def test_the_variable_is_read_at_import():
    code = "import tenon as tn; tn.jit(lambda x: tn.exp(x) * 2)(tn.ones(3))"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TENON_SHOW": "memory,graph"},
                          capture_output=True, text=True, check=True)
    assert "# graph\ndef function" in done.stderr and "MB between kernels" in done.stderr and not done.stdout


def test_a_graph_prints_as_text_whatever_was_loaded_before():
    program = "import tenon as tn; print(tn.jit(lambda x: x * 2).graph(tn.ones(3)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert "multiply(x, 2.0)" in found.stdout
