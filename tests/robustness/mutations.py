"""A text of a graph -> one with a few changes: of numbers, names, operators, types, lines; of pieces of other texts.

Many keep the text well formed, and types that agree: those go deepest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from tenon.graph.op import OPS
from tenon.types import BY_SHORT

TOKEN = re.compile(r"[A-Za-z_]\w*|\d+\.\d+(?:e-?\d+)?|\d+|\S|[ ]+|\n")
NUMBERS = ("-1", "0", "1", "2", "3", "5", "7", "64", "1000", "65536", "2147483648", "4611686018427387904",
           "9223372036854775808", "1.5", "-0.0", "1e300", "inf", "nan", "True", "None", "1j")
SIZES = ("0", "1", "2", "3", "4", "5", "7", "8", "13", "B", "C", "2*B + 1")
WORDS = ("B", "(B)//(2)", "max(B, 3)", "()", "(1,)", "(0, 1)", "'add'", "tuple", "axis", "body", "x", "v0", "p0")
REPEATED = ("(", "-", "B + ", "B * ", "1 + ", "x.", "[", "a if b else ", "\t", "# ")
ALIKE = [sorted(op.name for op in OPS.values() if op.signature.data == data and len(op.signature.attrs) == attrs)
         for data, attrs in {(op.signature.data, len(op.signature.attrs)) for op in OPS.values()}]
PEERS = {name: group for group in ALIKE for name in group}
Tokens = list[str]


def mutated(texts: Sequence[str], rng: Random) -> str:
    """A text with one to four changes."""
    tokens = TOKEN.findall(rng.choice(texts))
    changes = WELL_FORMED if rng.random() < 0.7 else WELL_FORMED + ANY
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        if tokens:
            rng.choice(changes)(tokens, texts, rng)
    return "".join(tokens)


def _place(tokens: Tokens, rng: Random, of: Callable[[str], bool]) -> int:
    found = [k for k, token in enumerate(tokens) if of(token)]
    return rng.choice(found) if found else rng.randrange(len(tokens))


def _everywhere(tokens: Tokens, old: str, new: str) -> None:
    tokens[:] = [new if token == old else token for token in tokens]


# ---------------------------------------------------------------- what leaves a text well formed

def _number(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    at = _place(tokens, rng, lambda t: t[0].isdigit())
    near = tokens[at].isdigit() and rng.random() < 0.7
    tokens[at] = str(max(0, int(tokens[at]) + rng.choice((-1, 1, 2)))) if near else rng.choice(NUMBERS)


def _type(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """One element type, or all of them that are alike."""
    at, new = _place(tokens, rng, BY_SHORT.__contains__), rng.choice(list(BY_SHORT))
    if rng.random() < 0.8:
        _everywhere(tokens, tokens[at], new)
    else:
        tokens[at] = new


def _operator(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """Another operator, mostly one that takes as much."""
    at = _place(tokens, rng, OPS.__contains__)
    tokens[at] = rng.choice(PEERS[tokens[at]] if tokens[at] in PEERS and rng.random() < 0.8 else list(OPS))


def _name(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """One value for another."""
    def is_value(token: str) -> bool:
        return token.isidentifier() and token not in OPS and token not in BY_SHORT
    tokens[_place(tokens, rng, is_value)] = tokens[_place(tokens, rng, is_value)]


def _size(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """One size for another, wherever it stands."""
    _everywhere(tokens, tokens[_place(tokens, rng, str.isdigit)], rng.choice(SIZES))


def _flag(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    at = _place(tokens, rng, ("True", "False").__contains__)
    tokens[at] = {"True": "False", "False": "True"}.get(tokens[at], tokens[at])


def _result(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """Another value is returned, as it is or beside the others."""
    at = len(tokens) - 1 - tokens[::-1].index("return") if "return" in tokens else 0
    name = tokens[_place(tokens, rng, re.compile(r"v\d+|x\d*|p\d+").fullmatch)]        # type: ignore[arg-type]
    tokens[at + 1:at + 1] = [" ", name, ","] if rng.random() < 0.5 else [" ", name, " #"]


def _earlier(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """A statement and the next change places."""
    lines = "".join(tokens).splitlines(keepends=True)
    at = rng.randrange(len(lines))
    lines[at:at + 2] = reversed(lines[at:at + 2])
    tokens[:] = TOKEN.findall("".join(lines))


# ---------------------------------------------------------------- what does not

def _word(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    tokens[rng.randrange(len(tokens))] = rng.choice(WORDS + NUMBERS)


def _without(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    del tokens[rng.randrange(len(tokens))]


def _twice(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    at = rng.randrange(len(tokens))
    tokens.insert(at, tokens[at])


def _swapped(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]


def _lines(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """A line left out, put elsewhere, doubled, or taken from another text."""
    lines = "".join(tokens).splitlines(keepends=True)
    at = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        case 2:
            lines.insert(at, lines[at])
        case 3:
            lines[at] = rng.choice(rng.choice(texts).splitlines()) + "\n"
    tokens[:] = TOKEN.findall("".join(lines))


def _deep(tokens: Tokens, texts: Sequence[str], rng: Random) -> None:
    """Something over and over again."""
    tokens.insert(rng.randrange(len(tokens)), rng.choice(REPEATED) * rng.choice((3, 30, 3000, 30_000)))


WELL_FORMED = [_number] * 6 + [_type] * 3 + [_operator] * 4 + [_name] * 5 + [_size] * 6 + [_flag] + [_result] * 2 + [_earlier]
ANY = [_word, _without, _twice, _swapped, _lines, _lines, _deep] * 2
