"""What equal calls are known by: attributes of operators as parts of a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenon.types import DType

SIMPLE = frozenset((bool, int, str, type(None), DType))     # kinds of attributes that are equal where they compare so
PLAIN = SIMPLE | {float}


def add_attrs(key: list[Any], attrs: Mapping[str, Any]) -> bool:
    """Add attributes to a key, with their types (1 == True); False where one is not plain data."""
    for value in attrs.values():
        kind = type(value)
        if kind in SIMPLE:
            key += kind, value
            continue
        kinds = tuple(map(type, value)) if type(value) is tuple else (kind,)
        if not PLAIN.issuperset(kinds):
            return False
        key += kinds, repr(value) if float in kinds else value      # 0.0 == -0.0
    return True
