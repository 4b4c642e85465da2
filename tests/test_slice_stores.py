"""`x[0][1] = 9` stores into x where the source says for certain what x is; else it is an error, and x stays."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import tenon as tn
from tenon.errors import ArgumentError

SOURCE = """
def change(x, y, at=0):
    x[at][1] = 9
    y[1].add_(1)
    return x, y
"""


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("changed_slices", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_a_slice_that_nobody_holds_is_stored(wrap: Any, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SOURCE)
    x, y = wrap(imported(tmp_path / "program.py").change)(tn.zeros(2, 2), tn.zeros(2, 2))
    assert x.tolist() == [[0, 9], [0, 0]] and y.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("edit", [("x[at]", "y[at]"), ("y[1]", "y[0]"), ("x[at]", "x[1:]"), ("    x[at]", "\n    x[at]")])
def test_a_file_that_was_changed_since_is_not_believed(edit: tuple[str, str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SOURCE)
    change = imported(program).change
    program.write_text(SOURCE.replace(*edit))
    x, y = tn.zeros(2, 2), tn.zeros(2, 2)
    with pytest.raises(ArgumentError, match="a copy that nobody holds"):
        change(x, y)
    assert not y.any() and x.sum() in (0, 9)


def test_a_private_attribute_has_another_name_than_its_line_says() -> None:
    class Holder:
        def __init__(self) -> None:
            self.__x = tn.zeros(2, 2)

        def change(self) -> None:
            self.__x[0][1] = 9
    with pytest.raises(ArgumentError, match="a copy that nobody holds"):
        Holder().change()
