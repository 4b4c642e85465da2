"""Rows of the driver's table, the pointers that they work on, and the moves that change them.

    rows = Rows({})
    rows.row("copy", driver.COPY, rows.place_operands((target, source)), 64)
    moves = rows.finish()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenon.program import step_executor
from tenon.program.kernel import count
from tenon.program.steps import Move, Storage
from tenon.types import TensorType, bool_

NOWHERE = Storage("nowhere", TensorType(bool_, ()))     # the address 0


class StepTableRows:
    """Rows that are written one after the other; jumps and moves are filled in once it is known where they lead."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = sizes
        self.rows: list[list[int]] = []
        self.labels: list[str] = []
        self.operands: list[Storage] = []
        self.offsets: dict[int, int] = {}               # the operands that begin so many bytes after their storage
        self.slots: dict[Storage, int] = {}             # where the pointer of a storage is that moves read or write
        self.moved: list[tuple[int, tuple[Move, ...]]] = []     # (row, the moves that it makes)
        self.pointed: list[tuple[int, Storage]] = []    # (row, the storage whose pointer it hands on to its users)

    def slot(self, storage: Storage) -> int:
        """Where the pointer of a storage lies that moves read or write."""
        if storage not in self.slots:
            self.slots[storage] = self.place_operands((storage,))
        return self.slots[storage]

    def place_operands(self, storages: Sequence[Storage]) -> int:
        """Append pointers; the number of the first."""
        self.operands += storages
        return len(self.operands) - len(storages)

    def row(self, label: str, *words: int) -> int:
        """Append a row; its number."""
        self.rows.append([*words, *[0] * (step_executor.STEP_WORDS - len(words))])
        self.labels.append(label)
        return len(self.rows) - 1

    def jump_here(self, row: int) -> None:
        """Let the jump in this row lead to the next row."""
        self.rows[row][1] = len(self.rows)

    def finish(self) -> list[list[int]]:
        """The end; every pointer is known now, so the moves are written down: (to, from, offset) each."""
        self.row("end", step_executor.END)
        for move in (move for _, moves in self.moved for move in moves):
            self.slot(move.target)
            self.slot(move.source)
        spare = self.place_operands((NOWHERE,))
        copies, words = self._copies(), list[list[int]]()

        def moves_of(row: int, made: Iterable[tuple[int, int, int]]) -> None:
            first = len(words)
            words.extend(map(list, made))
            self.rows[row][1:3] = first, len(words) - first
        for row, moves in self.moved:
            made = in_sequence([(self.slot(m.target), self.slot(m.source), count(m.offset, self.sizes)) for m in moves],
                               spare)
            moves_of(row, made + [copy for m in moves for copy in copies.get(m.target, ())])
        for row, storage in self.pointed:
            moves_of(row, copies.get(storage, ()))
        return words

    def _copies(self) -> dict[Storage, list[tuple[int, int, int]]]:
        """The moves of moving storages' pointers from their slots to where else they stand."""
        copies: dict[Storage, list[tuple[int, int, int]]] = {}
        for k, x in enumerate(self.operands):
            if x.kind == "moving" and self.slots.get(x) != k:
                copies.setdefault(x, []).append((k, self.slot(x), self.offsets.get(k, 0)))
        return copies



def in_sequence(moves: Sequence[tuple[int, int, int]], spare: int) -> list[tuple[int, int, int]]:
    """Moves that are meant at once, one after the other: none writes what a later one reads.

    >>> in_sequence([(1, 2, 0), (2, 1, 0)], spare=9)
    [(9, 2, 0), (2, 1, 0), (1, 9, 0)]
    """
    waiting, made = list(moves), []
    while waiting:
        free = next((m for m in waiting if not any(m[0] == other[1] for other in waiting if other is not m)), None)
        if free is None:        # a ring: what the first reads is kept aside
            target, source, offset = waiting[0]
            made.append((spare, source, offset))
            waiting[0] = target, spare, 0
            continue
        made.append(free)
        waiting.remove(free)
    return made
