"""TENON_SHOW -> what happens inside Tenon, printed as it happens, to the standard error stream.

    TENON_SHOW=time,memory python train.py

    graph             every graph that is compiled, as it was captured
    loops, llvm, asm  the kernels of every program
    time              what capturing, passes, kernels and machine code took; what is indented is a part of a later line;
                      `from disk` in the place of all passes where an earlier process ran them on the same graph
    memory            the plan of an arena: its size, lower bound and gap, and its largest places
    guards            what was captured; fallbacks: what runs with graph breaks or eagerly, and why
    recompiles        what was captured again, and what had changed: both values
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

from tenon.observe import Event, subscribe

TIMED = ("capture", "compile", "layout", "first_run")       # one after the other: together, what a first call takes
WITHIN = ("pass", "from_disk", "assemble", "machine_code")      # parts of these, which come before their whole


def show(words: Collection[str], write: Callable[[str], object] | None = None) -> Callable[[], None]:
    """Print these kinds of events until the returned function is called; `write` gets every line."""
    def hear(event: Event) -> None:
        for word in words:
            if text := LINES[word](event):
                (write or _to_standard_error)(f"{text}\n")
    return subscribe(hear)


def _to_standard_error(text: str) -> None:
    sys.stderr.write(text)


def _time(event: Event) -> str:
    if event.name not in (*TIMED, *WITHIN):
        return ""
    what = event.fields.get("name") if event.name == "pass" else event.name.replace("_", " ")
    what = what if event.name in TIMED else f"  {what}"
    where = event.fields.get("graph") or event.fields.get("function")
    return f"# time: {what!s:18} {event.seconds * 1e3:9.1f} ms  {where}"


def _graph(event: Event) -> str:
    return f"# graph\n{event.fields['captured']}" if event.name == "graph" else ""


def _kernels(stage: str) -> Callable[[Event], str]:
    def text(event: Event) -> str:
        if event.name != "program":
            return ""
        program: Any = event.fields["program"]
        if stage == "loops":
            return "\n".join(f"# kernel {unit.name}\n{unit.loops}" for unit in program.kernels)
        return f"# {event.fields['name']}\n{program.llvm if stage == 'llvm' else program.assembly}"
    return text


def _memory(event: Event) -> str:
    if event.name != "memory":
        return ""
    from tenon.debug.arena_report import plan_of  # local: with it comes what runs programs
    fields: Any = event.fields
    return "\n".join(f"# memory: {line}" for line in plan_of(fields["program"], fields["layout"]).splitlines())


def _fallback(event: Event) -> str:
    return f"# fallback: {event.fields['function']}: {event.fields['reason']}" if event.name == "fallback" else ""


def _captured(event: Event) -> str:
    if event.name != "captured":
        return ""
    return f"# captured: {event.fields['function']}: {event.fields['nodes']} nodes; tn.explain lists its guards"


def _recompiled(event: Event) -> str:
    if event.name != "recompiled":
        return ""
    return f"# recompiled: {event.fields['function']}, {event.fields['number']}: {event.fields['why']}"


LINES: dict[str, Callable[[Event], str]] = {
    "time": _time, "graph": _graph, "loops": _kernels("loops"), "llvm": _kernels("llvm"), "asm": _kernels("asm"),
    "memory": _memory, "recompiles": _recompiled, "guards": _captured, "fallbacks": _fallback}
