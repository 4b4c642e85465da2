"""A hundred mistakes: each message names what was called, the operands' shapes, the user's line, and a mend; and
PyTorch's message is never one that says more."""

import re

import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import TenonError

from . import user_mistakes
from .user_mistakes import ROWS, error_of, names


def test_there_are_a_hundred():
    assert len(ROWS) >= 100 and len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_message_names_what_was_called_and_the_mend(row):
    code, words, _ = row
    number = ROWS.index(row)
    error = error_of(code, {"tn": tn, "nn": nn, "optim": optim, "F": nn.functional, **names(tn)}, number)
    assert isinstance(error, TenonError), error
    said = str(error)
    for word in re.split(r", (?![^\[]*\])", words):
        assert word in said, f"{word!r} is not in: {said}"
    assert error.where is not None and error.where.file.startswith(("mistake_", user_mistakes.__file__)), error.where
    assert "^" in said, said
    assert error.hint, said


def told(said, code):
    """What a message tells: types of operands, the user's line, a mend."""
    shapes = len(set(re.findall(r"\[\d[\d, x]*\]|\d+x\d+|size \d+|\d+", said)))
    return min(shapes, 2) + (code in said) + ("hint: " in said)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_pytorchs_message_tells_no_more(row):
    torch = pytest.importorskip("torch")
    code, _, theirs = row
    number = ROWS.index(row)
    mine = error_of(code, {"tn": tn, "nn": nn, "optim": optim, "F": nn.functional, **names(tn)}, number)
    other = error_of(theirs, {"torch": torch, **names(torch)}, number)
    if other is None:
        return          # PyTorch goes on with what is most likely wrong
    assert told(str(mine), code) >= told(str(other), theirs), (str(mine), str(other))
