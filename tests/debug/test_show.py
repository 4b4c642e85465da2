"""TENON_SHOW prints what it names, as it happens."""

import os
import subprocess
import sys

import pytest

import tenon as tn
from tenon.config import SHOWABLE
from tenon.debug.show import LINES, show

EXPECTED = {
    "graph": "def <lambda>" , "loops": "# kernel", "llvm": "define void", "asm": ".text", "time": "# time: capture",
    "memory": "MB between kernels", "guards": "nodes; tn.explain", "fallbacks": "",
}


def test_every_word_has_lines():
    assert set(LINES) == set(SHOWABLE) == set(EXPECTED)


@pytest.mark.parametrize("word", SHOWABLE)
def test_a_word_prints_its_lines_and_no_others(word):
    seen: list[str] = []
    stop = show({word}, seen.append)
    try:
        tn.jit(lambda x: tn.exp(x) * 1.375 + tn.sum(x))(tn.ones(3))
    finally:
        stop()
    text = "".join(seen)
    assert EXPECTED[word].replace("<lambda>", "") in text
    assert bool(text) == bool(EXPECTED[word])


def test_the_variable_is_read_at_import():
    code = "import tenon as tn; tn.jit(lambda x: tn.exp(x) * 2)(tn.ones(3))"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TENON_SHOW": "memory,graph"},
                          capture_output=True, text=True, check=True)
    assert "# graph\ndef function" in done.stderr and "MB between kernels" in done.stderr and not done.stdout
