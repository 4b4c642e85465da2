"""The names that code can read are those that Python's own disassembler finds."""

from __future__ import annotations

import argparse
import ast
import asyncio
import dis
import inspect
import types
import typing

import pytest

import tenon.capture.code_names
import tenon.tensor
from tenon.capture.code_names import ATTRIBUTES, LOADS, STORES, _named, names_of


def codes_in(module: types.ModuleType) -> set[types.CodeType]:
    """All code objects of a module, those inside of others too."""
    todo = [compile(inspect.getsource(module), module.__name__, "exec")]
    found = set()
    while todo:
        code = todo.pop()
        found.add(code)
        todo += [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return found


@pytest.mark.parametrize("module", [argparse, ast, asyncio.events, typing, tenon.tensor, tenon.capture.code_names],
                         ids=lambda module: module.__name__)
def test_names_are_those_that_the_disassembler_finds(module):
    for code in codes_in(module):
        listed = list(dis.get_instructions(code))
        kinds = LOADS, ATTRIBUTES, {"IMPORT_NAME"}, STORES
        expected = tuple({i.argval for i in listed if i.opname in kind} for kind in kinds)
        assert _named(code) == expected, code


def test_a_name_beyond_the_first_256_is_found():
    text = "def f(x):\n" + "".join(f"    x.name{k} = x.read{k}\n" for k in range(400))
    (code,) = (x for x in compile(text, "many", "exec").co_consts if isinstance(x, types.CodeType))
    assert {f"read{k}" for k in range(400)} <= names_of(code).attributes
