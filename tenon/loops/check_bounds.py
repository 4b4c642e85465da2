"""Kernel -> one that looks, when it runs, at each position of which nothing proves that it is in its buffer.

    words[5 + rank] = ...   ->   words[checked(5 + rank, 10)] = ...     and the run ends in an error that names `words`

Products look at nothing: their positions are proved, by what operators need of sizes if there is such (`size_needs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tenon.errors import ACCESSES, Location
from tenon.loops.expressions import CheckedIndex, Expr, Load
from tenon.loops.loop_ir import Block, Kernel, Let, Loop, Stmt, Store, Update, checks_of, roots
from tenon.loops.traversal import replace as replaced
from tenon.loops.traversal import walk
from tenon.loops.verify_bounds import Access, unproved
from tenon.records import replace

Accesses = Mapping[Stmt, list[Access]]
LOOKING = (Let, Loop, Store, Update)        # statements that can


def with_checks(kernel: Kernel, where: Location | None) -> Kernel:
    """The kernel, whose failing positions are errors at a line of the user."""
    found: dict[Stmt, list[Access]] = {}
    for access in unproved(kernel):
        if isinstance(access.statement, LOOKING):
            found.setdefault(access.statement, []).append(access)
    if not found:
        return kernel
    nests = tuple(replace(nest, body=_block(nest.body, found, kernel.name, where)) for nest in kernel.nests)
    return replace(kernel, nests=nests, checks=checks_of(nests))


def _block(body: Block, found: Accesses, kernel: str, where: Location | None) -> Block:
    return tuple(_statement(x, found, kernel, where) for x in body)


def _statement(x: Stmt, found: Accesses, kernel: str, where: Location | None) -> Stmt:
    if isinstance(x, Loop):
        x = replace(looked_at := x, body=_block(x.body, found, kernel, where))
        return _with(x, _checked(looked_at, found, kernel, where)) if looked_at in found else x
    return _with(x, _checked(x, found, kernel, where)) if x in found else x


def _checked(x: Stmt, found: Accesses, kernel: str, where: Location | None) -> dict[Expr, Expr]:
    """What stands in the place of the loads, and of the position that is stored at."""
    accesses = {(access.kind, access.buffer, access.offset, access.mask) for access in found[x]}
    done: dict[Expr, Expr] = {}

    def look(kind: str, load: Load) -> Expr:
        name = f"{ACCESSES}kernel {kernel}: {kind} {load.buffer.name}"
        mask = None if load.mask is None else replaced(load.mask, done)
        return CheckedIndex(replaced(load.offset, done), load.buffer.elements, mask, where, name, False)

    for load in walk(*roots(x)):
        if isinstance(load, Load) and ("load of", load.buffer, load.offset, load.mask) in accesses:
            mask = None if load.mask is None else replaced(load.mask, done)
            done[load] = Load(load.buffer, look("load of", load), mask)
    if isinstance(x, Store) and ("store to", x.buffer, x.offset, None) in accesses:
        done[x.offset] = look("store to", Load(x.buffer, x.offset, None))
    return done


def _with(x: Stmt, done: Mapping[Expr, Expr]) -> Stmt:
    """The statement with other expressions; a position that is stored at is only replaced as a whole."""
    match x:
        case Store(buffer=buffer, offset=offset, value=value):
            loads = {old: new for old, new in done.items() if old is not offset}
            return Store(buffer, done.get(offset, replaced(offset, loads)), replaced(value, loads))
        case Let(local=local, value=value):
            return Let(local, replaced(value, done))
        case Update(local=local, kind=kind, value=value):
            return Update(local, kind, replaced(value, done))
        case Loop(extent=extent, grain=grain):
            return replace(x, extent=replaced(extent, done), grain=replaced(grain, done))
    raise AssertionError(x)
