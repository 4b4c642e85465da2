"""Text of a Python function that is written for one capture, and the objects that it names."""

from __future__ import annotations

from typing import Any


class SourceWriter:
    """Lines of a function; `scope` holds the objects that they name."""

    def __init__(self, scope: dict[str, Any] | None = None) -> None:
        self.scope: dict[str, Any] = {} if scope is None else scope
        self.lines: list[str] = []

    def name(self, x: Any) -> str:
        """The name of an object in the text."""
        name = f"c{len(self.scope)}"
        self.scope[name] = x
        return name
