"""Files that change while the program runs: a jitted function does what its code does, not what its file says now."""

import ast
import importlib
import linecache
import os
import sys

import pytest

import tenon as tn

TEXT = """
def f(x):
    if x.sum() > 0:
        return x {}
    return -x
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module with this operation, and gives it, imported the first time and on demand."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written = []

    def make(operation, load=True):
        path = tmp_path / "a_changing_module.py"
        path.write_text(TEXT.format(operation))
        written.append(operation)
        os.utime(path, (len(written) * 100, len(written) * 100))
        if not load:
            return None
        found = sys.modules.get("a_changing_module")
        return importlib.reload(found) if found else importlib.import_module("a_changing_module")
    yield make
    sys.modules.pop("a_changing_module", None)


def test_a_module_is_loaded_again(module):
    x = tn.ones(2)
    for operation, want in (("+ 1", 2.0), ("* 50", 50.0), ("- 25", -24.0)):
        assert tn.jit(module(operation).f, fullgraph=True)(x).tolist() == [want] * 2


def test_a_file_is_changed_and_not_loaded(module):
    loaded, x = module("+ 1"), tn.ones(2)
    module("* 50", load=False)
    assert tn.jit(loaded.f)(x).tolist() == [2.0] * 2 and tn.jit(loaded.f)(-x).tolist() == [1.0] * 2


def test_a_cell_of_a_notebook_is_compiled_statement_by_statement():
    text = "import math\n\ndef f(x):\n    if x.sum() > 0:\n        return x * math.floor(2.5)\n    return -x\n"
    linecache.cache["<a cell>"] = len(text), None, text.splitlines(True), "<a cell>"
    names = {}
    for statement in ast.parse(text).body:
        exec(compile(ast.Module([statement], []), "<a cell>", "exec"), names)
    assert tn.jit(names["f"], fullgraph=True)(tn.ones(2)).tolist() == [2.0] * 2
