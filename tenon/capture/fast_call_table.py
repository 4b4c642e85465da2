"""The fast paths of a function, newest first; those that differ in values of plain arguments are one, with a table.

    table = added(table, modes(), call, values)     # `values`: of the arguments that are text, flags and numbers
    table = without(table, [call])

Those for all sizes come last, as the slow path finds the captures for certain sizes first: another order of sums would
give other bits, by what was called before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.guard_places import CHANGING
from tenon.capture.match_arguments import MISS, Call, is_plain
from tenon.capture.pytree import Structure

MAX_FAST_CALLS = 12         # of one function: each costs calls that go another way
MAX_CALLS_BY_VALUE = 32     # of one of these
PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
FastCallTable = tuple[tuple[Any, Call], ...]    # the modes, and what makes calls in them


class ByValue:
    """The fast paths of calls that differ in the values of the arguments in these places; some for each."""

    def __init__(self, places: tuple[int, ...], calls: Mapping[Any, tuple[Call, ...]]):
        self.places, self.calls = places, dict(calls)
        self.pick = itemgetter(*places, places[0])      # a tuple even of one

    def __call__(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            key = self.pick(args)
        except IndexError:
            return MISS
        if PLAIN.issuperset(map(type, key)):        # no hash of a user's
            for call in self.calls.get(key, ()):
                result = call(args, keywords)
                if result is not MISS:
                    return result
        return MISS

    def with_call(self, values: Mapping[int, Any], call: Call, last: bool) -> ByValue:
        """The same with one more, which is in the place of the oldest where there are many."""
        key = self.pick([values.get(k) for k in range(max(values) + 1)])
        others = {k: calls for k, calls in self.calls.items() if k != key}
        kept = list(others.items())[1 - MAX_CALLS_BY_VALUE:]
        return ByValue(self.places, {**dict(kept), key: _with(self.calls.get(key, ()), call, last)})


def plain_values(captured: Captured, structure: Structure, leaves: Sequence[Any]) -> dict[int, Any]:
    """The positional arguments of which only these values are right: numbers, text, flags."""
    if not is_plain(structure):
        return {}
    fixed = dict(captured.values)
    return {k: x for k, x in enumerate(leaves) if type(x) in PLAIN and (k in fixed or type(x) not in CHANGING)}


def added(table: FastCallTable, modes: Any, call: Call, values: Mapping[int, Any] = MappingProxyType({}),
          last: bool = False) -> FastCallTable:
    """The table with one for calls in these modes, whose arguments in some places have these values."""
    if not values:
        return _with(table, (modes, call), last)
    places = tuple(values)
    found = next((row for row in table if row[0] == modes and isinstance(row[1], ByValue) and row[1].places == places),
                 (modes, ByValue(places, {})))
    assert isinstance(found[1], ByValue)
    others = tuple([row for row in table if row is not found])
    return _with(others, (modes, found[1].with_call(values, call, last)), last=False)


def _with(table: tuple[Any, ...], row: Any, last: bool) -> tuple[Any, ...]:
    kept = table[:MAX_FAST_CALLS - 1]
    return (*kept, row) if last else (row, *kept)


def without(table: FastCallTable, gone: Collection[Call | None]) -> FastCallTable:
    """The table but for these."""
    left: list[tuple[Any, Call]] = []
    for modes, call in table:
        if isinstance(call, ByValue):
            calls = {key: tuple(x for x in several if x not in gone) for key, several in call.calls.items()}
            if any(calls.values()):
                left.append((modes, ByValue(call.places, {key: several for key, several in calls.items() if several})))
        elif call not in gone:
            left.append((modes, call))
    return tuple(left)
