"""What a function prolongs at every call, and reads -> the lines that read it, left to Python.

    losses.append(loss.item())
    mean = sum(losses) / len(losses)        # finds another list at every call: no capture would serve twice

Where two captures in a row stored into a list, queue, set, dictionary or text that the earlier one had guarded, and
that is longer or another text by now, a third one would too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tenon.capture.argument_roots import direct
from tenon.capture.capture_cache import Reason
from tenon.capture.captured import Captured
from tenon.capture.code_monitor import stack_of
from tenon.capture.code_names import reading_places
from tenon.capture.effects import MISSING
from tenon.capture.guard_places import OF_A_LIBRARY, GuardPlace, places_of
from tenon.capture.guard_readers import length
from tenon.capture.guards import GuardGroup
from tenon.capture.pytree import Structure
from tenon.errors import Location

CONTAINERS = (list, deque, set, dict)
PROLONGED = (str, bytes, tuple, list, set, frozenset)      # what stands in a place, and is another one each time
GROWN = 3           # captures, each for a longer list, after which a fourth is not made
MAX_GROWN = 6       # the same where nothing can be split
Place = tuple[int, Any]     # identity of a holder, and a key; None: what it holds as a whole


def history_reads(captures: Sequence[Captured], now: Captured, leaves: Sequence[Any]) -> list[Reason]:
    """Where code reads what this capture and the one before prolonged; nothing where the next call may find a capture
    that fits.

    A length alone is an input of the second capture, and looked at behind that.
    """
    *_, before = captures
    stored = _stored(before, leaves, False) & _stored(now, leaves, True)
    groups = [x for x in map(direct, before.guards.groups) if x.read is not length or len(captures) > 1]
    names = {name: path for group in groups for name, path in _prolonged(group, stored)}
    return [reason for name, path in names.items() for reason in _readers(now, name, path)]


def reads_of_growing(captures: Sequence[Captured]) -> list[Reason]:
    """Where code reads what others prolong: a list or queue that was longer at each of the last captures, and is longer
    again."""
    return [reason for path in _growing(captures, GROWN) for reason in _readers(captures[-1], _last_name(path), path)]


def what_grows(captures: Sequence[Captured]) -> Reason | None:
    """The same of many captures, where no line reads it: code makes up the names of what it reads."""
    path = next(_growing(captures, MAX_GROWN), None)
    return None if path is None else Reason(_longer(path), stack=())


def _growing(captures: Sequence[Captured], times: int) -> Iterator[str]:
    """The paths to lists and queues that were longer at each of the last captures, so many, and are longer again."""
    if len(captures) < times:
        return
    lengths = [_lengths(captured) for captured in captures[-times:]]
    for group in map(direct, captures[-1].guards.groups):
        known = list(dict.fromkeys(known[id(group.holder)] for known in lengths if id(group.holder) in known))[-times:]
        if isinstance(group.holder, (list, deque)) and len(known) == times and \
                all(x < y for x, y in pairwise([*known, len(group.holder)])):
            yield group.path.removeprefix("length of ")


def _lengths(captured: Captured) -> dict[int, int]:
    """How long guarded lists and queues were, by their identities."""
    groups = map(direct, captured.guards.groups)
    return {id(g.holder): len(g.expected) if g.sized else int(g.expected[0]) for g in groups
            if isinstance(g.holder, (list, deque)) and (g.sized or g.read is length)}


def growing_arguments(captures: Sequence[tuple[Structure, Captured]], names: Sequence[str],
                      by_others: bool) -> list[str]:
    """The parameters which hold a container that is longer at every call; `captures` are those of other structures,
    the last one that of this call.

    The function itself prolongs it at both of the last calls, or (`by_others`) somebody does so all the time.
    """
    last = captures[-GROWN:] if by_others and len(captures) >= GROWN else captures[-2:]
    own = all(any(number is not None and number >= 0 for _, number in captured.effects) for _, captured in last)
    if len(last) < 2 or not (own or len(last) >= GROWN):
        return []
    given = [dict(_arguments(structure, names)) for structure, _ in last]
    return [name for name in given[0] if len({x.get(name) for x in given}) == len(given)]


def _arguments(structure: Structure, names: Sequence[str]) -> Iterator[tuple[str, Structure]]:
    """The structure of each argument."""
    positional, named = structure.children
    yield from zip(names, positional.children, strict=False)
    yield from zip(named.labels, named.children, strict=True)


def _stored(captured: Captured, leaves: Sequence[Any], new: bool) -> set[Place]:
    """Where a capture stores something at every call; of items of dictionaries `new` ones alone."""
    found: set[Place] = set()
    for effect, number in captured.effects:
        holder = effect.holder if number is None or number >= 0 else (*leaves, *[None] * -number)[-1 - number]
        if holder is None:      # one that stands in another place in every call
            continue
        if effect.kind == "attribute" and not isinstance(holder, type):
            holder = vars(holder)
        found.add((id(holder), effect.key if effect.kind in ("item", "attribute", "slot") else None))
        if effect.kind == "item" and effect.value is not MISSING and (effect.key not in holder or not new):
            found.add((id(holder), None))
    return found


def _prolonged(group: GuardGroup, stored: set[Place]) -> Iterator[tuple[str, str]]:
    """The names under which code finds what is among these, and is longer by now; with the paths."""
    holder = group.holder
    if isinstance(holder, CONTAINERS) and (id(holder), None) in stored and _is_another_length(group):
        path = group.path.removeprefix("length of ").removeprefix("keys of ")
        yield _last_name(path), path
    for place, expected in zip(places_of(group), group.expected, strict=False):
        if (id(place.holder), place.key) in stored and _is_prolonged(place, expected):
            name = place.key if isinstance(place.key, str) else _last_name(group.path)
            yield name, f"{group.path}.{name}".lstrip(".")


def _is_another_length(group: GuardGroup) -> bool:
    try:
        now = tuple(group.read(group.holder))
    except Exception:       # an item that is gone
        return True
    return len(now) != len(group.expected) or (group.read is length and now != tuple(group.expected))


def _is_prolonged(place: GuardPlace, expected: Any) -> bool:
    """Whether text or a container in a place is another one by now, and no number or tensor."""
    try:
        now = place.read()
    except Exception:
        return False
    if type(now) is not type(expected) or not isinstance(now, PROLONGED):
        return False
    if isinstance(now, (str, bytes)):       # one that is replaced, such as the name of a state, may come back
        return len(now) > len(expected) and now.startswith(expected)
    return len(now) != len(expected)


def _last_name(path: str) -> str:
    """The name by which code finds what stands at the end of a path: `losses` of `self.losses['train'][0]`."""
    path = path.removesuffix(OF_A_LIBRARY)
    while path.endswith("]") and "[" in path:
        path = path[:path.rindex("[")]
    return path.rpartition(".")[2].strip("<>")


def _readers(captured: Captured, name: str, path: str) -> Iterator[Reason]:
    """The places at which code reads what has this name."""
    what = _longer(path)
    for code in captured.codes:
        for line, column in reading_places(code, name) if code in captured.callers else ():
            yield Reason(what, Location(code.co_filename, line),
                         stack=stack_of((code, line, column), captured.callers[code]))


def _longer(path: str) -> str:
    return f"{path.lstrip('.')} is longer, or another text, at every call"
