"""Text, as arrays of Python strings: these operators run on the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.onnx.operator_table import OperatorCall, operator


def _each(function: Any, x: Any, dtype: Any = object) -> Any:
    found = np.empty(x.size, dtype)
    for k, text in enumerate(x.reshape(-1)):
        found[k] = function(_text(text))
    return found.reshape(x.shape)


def _text(x: Any) -> str:
    return x.decode("utf-8", errors="surrogateescape") if isinstance(x, bytes) else str(x)


@operator("StringConcat", host=True)
def string_concat(call: OperatorCall, x: Any, y: Any) -> Any:
    left, right = np.broadcast_arrays(x, y)
    found = np.empty(left.size, object)
    found[:] = [_text(a) + _text(b) for a, b in zip(left.reshape(-1), right.reshape(-1))]
    return found.reshape(left.shape)


@operator("StringSplit", host=True)
def string_split(call: OperatorCall, x: Any) -> Any:
    """The parts of each text, filled up with empty ones, and how many there are."""
    delimiter, most = call.get("delimiter") or None, call.get("maxsplit")
    parts = [_text(t).split(delimiter, -1 if most is None else most) if _text(t) or delimiter else []
             for t in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    found = np.full((len(parts), width), "", object)
    for k, row in enumerate(parts):
        found[k, :len(row)] = row
    counts = np.array([len(row) for row in parts], np.int64)
    return found.reshape(*x.shape, width), counts.reshape(x.shape)


@operator("StringNormalizer", host=True)
def string_normalizer(call: OperatorCall, x: Any) -> Any:
    """Without stop words, in one case; one empty text where nothing is left."""
    cases: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": _text}
    change = cases[call.get("case_change_action", "NONE")]
    sensitive = call.get("is_case_sensitive", 0)
    stops = set(call.get("stopwords", []))
    stops = stops if sensitive else {s.lower() for s in stops}
    rows = [[change(t) for t in map(_text, row) if (t if sensitive else t.lower()) not in stops]
            for row in (x if x.ndim == 2 else [x])]
    if len({len(row) for row in rows}) > 1:
        raise call.unsupported("rows that keep different numbers of words")
    found = np.array([row or [""] for row in rows], object)
    return found if x.ndim == 2 else found[0]


# What takes for ever on some texts, or is not part of RE2's language, which the standard names.
REFUSED = re.compile(r"\([^()]*[*+}][^()]*\)\s*[*+{]|\\\d|\(\?[=!<P]|\(\([^)]*[*+}].*\).*\)[*+{]")


@operator("RegexFullMatch", host=True)
def regex_full_match(call: OperatorCall, x: Any) -> Any:
    if REFUSED.search(call.need("pattern")):
        raise call.unsupported(f"the pattern {call.need('pattern')!r}: repetitions within repetitions, or references")
    try:
        pattern = re.compile(call.need("pattern"))
    except re.error as error:
        raise call.unsupported(f"the pattern {call.need('pattern')!r}: {error}") from None
    return _each(lambda t: pattern.fullmatch(t) is not None, x, np.bool_)


@operator("TfIdfVectorizer", host=True)
def tf_idf_vectorizer(call: OperatorCall, x: Any) -> Any:
    """How often each n-gram of a table occurs in a row, with gaps of up to `max_skip_count`."""
    mode, weights = call.need("mode"), call.get("weights")
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    table = _grams(call)
    width = max(call.need("ngram_indexes"), default=-1) + 1
    counts = np.zeros((len(rows), width), np.float32)
    low, high = call.need("min_gram_length"), call.need("max_gram_length")
    for k, row in enumerate(rows):
        words = [_text(w) if x.dtype.kind in "OUS" else int(w) for w in row]
        for length in range(low, high + 1):
            for skip in range(1 if length == 1 else call.need("max_skip_count") + 1):
                span = (length - 1) * (skip + 1)
                for begin in range(len(words) - span):
                    place = table.get(tuple(words[begin:begin + span + 1:skip + 1]))
                    if place is not None:
                        counts[k, place[0]] += 1
    by_place = np.ones(width, np.float32)
    if weights is not None:
        for column, number in table.values():
            by_place[column] = weights[number]
    found = counts if mode == "TF" else (counts > 0) * by_place if mode == "IDF" else counts * by_place
    return found.astype(np.float32) if x.ndim == 2 else found.astype(np.float32)[0]


def _grams(call: OperatorCall) -> dict[tuple[Any, ...], tuple[int, int]]:
    """n-gram -> its column, and its number."""
    pool = call.get("pool_strings") or call.get("pool_int64s") or []
    starts, columns = call.need("ngram_counts"), call.need("ngram_indexes")
    table: dict[tuple[Any, ...], tuple[int, int]] = {}
    number = 0
    for length, begin in enumerate(starts, start=1):
        end = starts[length] if length < len(starts) else len(pool)
        for k in range(begin, end - length + 1, length):
            table[tuple(pool[k:k + length])] = columns[number], number
            number += 1
    return table
