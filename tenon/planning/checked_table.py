"""A table of outside data -> checked values: each of a kind, and nothing left over.

What is wrong is an ArgumentError that names the file, the key, what was found and what is expected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from tenon.errors import ArgumentError
from tenon.types import as_dtype

LARGEST = 1e30          # of any number in a file
MAX_DEVICES = 1 << 24
MISSING: Any = object()


class CheckedTable:
    """A table that is read key by key; what is missing, of another kind, or left over is an error."""

    def __init__(self, table: Any, where: str):
        self.where = where
        if not isinstance(table, Mapping):
            raise ArgumentError(f"{where}: a table is expected, not {table!r:.80}")
        self.table_of, self.left = table, set(table)

    def wrong(self, key: str, found: Any, expected: str) -> ArgumentError:
        """The error of a value."""
        return ArgumentError(f"{self.where}: {key} is {found!r:.80}, and {expected} is expected")

    def value(self, key: str, default: Any = MISSING) -> Any:
        """What stands under a key."""
        self.left.discard(key)
        found = self.table_of.get(key, default)
        if found is MISSING:
            raise ArgumentError(f"{self.where}: {key} is missing")
        return found

    def names(self, kind: str) -> list[str]:
        """All keys, each of which names something of this kind."""
        for name in self.table_of:
            try:
                as_dtype(name)
            except Exception:
                raise ArgumentError(f"{self.where}: {name!r:.80} is not {kind}") from None
        if not self.table_of:
            raise ArgumentError(f"{self.where}: {kind} is missing")
        return list(self.table_of)

    def number(self, key: str, default: Any = MISSING, low: float | None = None) -> float:
        """A number above 0, or from `low` on."""
        found = self.value(key, default)
        least = "above 0" if low is None else f"of at least {low:g}"
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not isfinite(found) or found > LARGEST \
                or (found <= 0 if low is None else found < low):
            raise self.wrong(key, found, f"a number {least}")
        return float(found)

    def share(self, key: str, default: Any = MISSING) -> float:
        """A number above 0 and up to 1."""
        found = self.number(key, default)
        if found > 1:
            raise self.wrong(key, found, "a part of 1")
        return found

    def whole(self, key: str, default: Any = MISSING) -> int:
        """A whole number of at least 1."""
        found = self.value(key, default)
        if type(found) is not int or not 1 <= found <= MAX_DEVICES:
            raise self.wrong(key, found, f"a whole number from 1 to {MAX_DEVICES}")
        return int(found)

    def text(self, key: str, default: Any = MISSING) -> str:
        """A text."""
        found = self.value(key, default)
        if not isinstance(found, str):
            raise self.wrong(key, found, "a text")
        return found

    def truth(self, key: str, default: bool = False) -> bool:
        """true or false."""
        found = self.value(key, default)
        if not isinstance(found, bool):
            raise self.wrong(key, found, "true or false")
        return found

    def table(self, key: str, default: Any = MISSING) -> CheckedTable:
        """A table inside of this one."""
        return CheckedTable(self.value(key, default), f"{self.where}: {key}")

    def tables(self, key: str) -> list[CheckedTable]:
        """A list of tables, at least one."""
        found = self.value(key)
        if not isinstance(found, list) or not found:
            raise self.wrong(key, found, f"at least one [[{key}]]")
        return [CheckedTable(x, f"{self.where}: {key} {k + 1}") for k, x in enumerate(found)]

    def done(self) -> None:
        """Raise where keys are left over: most likely they are misspelt."""
        if self.left:
            raise ArgumentError(f"{self.where}: {sorted(self.left)[0]!r:.80} is no key here",
                                hint=f"there is {', '.join(sorted(set(self.table_of) - self.left)) or 'nothing'}")

    def among(self, key: str, known: Collection[Any]) -> Any:
        """One of the known values."""
        found = self.value(key)
        if not isinstance(found, (str, int)) or isinstance(found, bool) or found not in known:
            raise self.wrong(key, found, f"one of {', '.join(map(str, known))}")
        return found
