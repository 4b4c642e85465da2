"""Why a schedule does not take a statement: what a chooser returns in place of a plan; it counts as false."""

from __future__ import annotations

from typing import Literal

from tenon.records import dataclass


@dataclass(frozen=True)
class Refusal:
    """The reason, to be read.

    >>> str(Refusal("sizes are not known")), bool(Refusal(""))
    ('sizes are not known', False)
    """

    reason: str

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        return self.reason
