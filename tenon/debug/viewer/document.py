"""A call of a function -> all that there is to see of it, as plain data for JSON (`docs/viewer.md` is the schema)."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenon.capture.capture_cache import Reason
from tenon.capture.captured import Captured
from tenon.capture.constant_weights import late_program
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.config import VERSION, config
from tenon.debug.explain import Explanation, explain
from tenon.debug.node_origins import ModuleNames, Origin
from tenon.debug.recapture import recaptured
from tenon.debug.step_times import Timed, timed_steps
from tenon.debug.viewer.device_data import device_data
from tenon.debug.viewer.graph_data import Data, Numbering, all_nodes, bytes_of
from tenon.debug.viewer.node_values import node_values, watched_values
from tenon.debug.viewer.program_data import arena_data, kernel_data, step_data
from tenon.debug.watched_values import Watched
from tenon.errors import ArgumentError
from tenon.gc_control import collected_at_the_end
from tenon.graph.interpret import concrete_type
from tenon.graph.ir import Graph
from tenon.jit import jit
from tenon.pipeline import Step
from tenon.runtime.program import Program

FORMAT, FORMAT_VERSION = "tenon.view", 1
LONGEST_SOURCE = 20_000         # lines of one file
REPEATS = 3


def document_of(function: Any, args: Sequence[Any], keywords: Mapping[str, Any], times: bool = True,
                code: bool = True, values: bool | Watched = False) -> Data:
    """Everything about the call `function(*args, **keywords)`.

    `times` measures every step, `code` writes LLVM's and the machine's code of each kernel, `values` computes every
    node, or tells what was watched.  Nothing of the call is done.  Raises ArgumentError for what is no function.
    """
    if not callable(function):
        raise ArgumentError(f"view takes a function and its arguments, not {function!r}")
    with collected_at_the_end():
        return _document_of(function, args, keywords, times, code, values)


def _document_of(function: Any, args: Sequence[Any], keywords: Mapping[str, Any], times: bool, code: bool,
                 values: bool | Watched) -> Data:
    whole = function if isinstance(getattr(function, "__func__", function), Jitted) else jit(function)
    jitted: Jitted = getattr(whole, "__func__", whole)
    bound = (whole.__self__, *args) if whole is not jitted else tuple(args)
    told = explain(whole, *args, **keywords)
    _, captured = jitted.look(*bound, **keywords)
    if captured is None:
        return {**_head(jitted), **_told(jitted, told), "fallbacks": _fallbacks(jitted), **_sources((), told)}
    again = recaptured(jitted, captured, bound, keywords)
    graph, sizes = again.graph, dict(again.sizes)
    trace: list[Step] = []
    numbering = Numbering(sizes)
    data: Data = {**_head(jitted), "sizes": sizes, **_told(jitted, told, captured), "fallbacks": _fallbacks(jitted),
                  "params": _params(again.captured, graph, again.names, sizes), "nodes": numbering.graph(graph),
                  "results": [[numbering.numbers[r.node], r.index] if r.node is not None
                              else [-1, graph.params.index(r)] for r in graph.results],
                  **_sources(_origins(graph), told)}
    if isinstance(values, Watched):
        data["values"] = watched_values(values, graph, numbering.numbers)
    elif values:
        data["values"] = node_values(again, bound, keywords, numbering.numbers)
    executable = again.compiled(trace)
    data["devices"] = device_data(graph, executable, len(data["origins"]))
    if executable is None or not isinstance(late_program(executable), Program):
        return {**data, "passes": _passes(numbering, trace)}
    timed = timed_steps(again.captured, executable, bound, keywords, REPEATS) if times else ()
    data["passes"] = _passes(numbering, trace)      # behind the run, which may compile again for other constants
    _add_program(data, late_program(executable), numbering, timed, code)
    return data


def _head(jitted: Jitted) -> Data:
    return {"format": FORMAT, "version": FORMAT_VERSION, "name": jitted.__name__, "tenon": VERSION,
            "threads": config().threads, "sizes": {}, "params": [], "nodes": [], "results": [], "passes": [],
            "steps": [], "kernels": [], "arena": None, "values": {}, "devices": {"names": [], "of": []}}


def _told(jitted: Jitted, told: Explanation, captured: Captured | None = None) -> Data:
    """What `tn.explain` says, and the guards one by one."""
    captures = [c for record in jitted.records.values() for c in record.captures]
    guards = [] if captured is None else [
        *captured.guards.values(),
        *(f"{left} {relation} {right} is {answer}"
          for (left, relation, right), answer in captured.assumptions.recorded.items())]
    count = 0 if captured is None else len(captured.guards)
    return {"explanation": list(told.lines), "guards": guards, "guards_by_identity": max(0, count - len(guards)),
            "captures": [{"why": c.why, "nodes": len(c.graph.nodes), "types": [str(t) for t in c.types]}
                         for c in captures],
            "seconds": told.seconds}


def _fallbacks(jitted: Jitted) -> list[Data]:
    reasons: list[Reason] = [r for record in jitted.records.values() for r in (record.eager, record.full) if r]
    return [{"what": r.what, "hint": r.hint, "file": r.where.file if r.where else None,
             "line": r.where.line if r.where else None, "text": str(r)} for r in reasons]


def _params(captured: Captured, graph: Graph, names: ModuleNames, sizes: Mapping[str, int]) -> list[Data]:
    sources: list[Source | None] = [*captured.sources, *([None] * (len(graph.params) - len(captured.sources)))]
    return [{"name": _param_name(source, p.name, names) or f"p{k}", "type": str(p.type),
             "bytes": bytes_of(p.type, sizes), "kind": _kind(source)}
            for k, (p, source) in enumerate(zip(graph.params, sources, strict=False))]


def _kind(source: Source | None) -> str:
    return {Argument: "argument", Held: "held", GradientOf: "gradient"}.get(type(source), "kept")


def _param_name(source: Source | None, name: str, names: ModuleNames) -> str:
    if isinstance(source, Held):
        return names.tensors.get(id(source.holder), name)
    if isinstance(source, GradientOf):
        return f"gradient of {_param_name(source.source, name, names)}"
    return name


def _origins(graph: Graph) -> list[Origin]:
    return [node.loc for node, _ in all_nodes(graph, None) if isinstance(node.loc, Origin)]


def _sources(origins: Iterable[Origin], told: Explanation) -> Data:
    """The user's files that nodes come from, whole, and where each captured node comes from."""
    files: dict[str, int] = {}

    def number(file: str) -> int:
        return files.setdefault(file, len(files)) if file else -1
    listed = sorted(origins, key=lambda o: o.number)
    data = [{"file": number(o.file), "line": o.line, "column": o.column, "end_column": o.end_column,
             "function": o.function, "path": o.path, "kind": o.kind, "phase": o.phase,
             "stack": [[number(file), line] for file, line in o.stack]} for o in listed]
    return {"origins": data, "files": [{"path": file, "name": os.path.basename(file), "lines": _lines(file)}
                                       for file in files],
            "excerpt": [[line.number, line.text, line.mark, line.operators] for line in told.source]}


def _lines(file: str) -> list[str]:
    return [line.rstrip("\n") for line in linecache.getlines(file)[:LONGEST_SOURCE]]


def _passes(numbering: Numbering, trace: Sequence[Step]) -> list[Data]:
    found = []
    for step in trace:
        changes = numbering.passed(step.graph) if step.changed else None
        found.append({"name": step.name, "seconds": step.seconds, "nodes": step.nodes_after, "changed": step.changed,
                      "rules": _rules(step), **(changes or {})})
    return found


def _rules(step: Step) -> list[Data]:
    """The rules of a table that a pass applied, and the captured nodes to which."""
    found: dict[Any, list[int]] = {}
    for one in step.rewrites:
        number = one.node.number if isinstance(one.node, Origin) else -1
        found.setdefault(one.rule, []).append(number)
    return [{"rule": linecache.getline(rule.file, rule.line).strip(), "where": str(rule), "origins": origins}
            for rule, origins in found.items()]


def _add_program(data: Data, program: Program, numbering: Numbering, timed: Sequence[Timed], code: bool) -> None:
    """What the program runs, its kernels and memory."""
    sizes = data["sizes"]
    layout = program.plan if timed else program.layout_for(
        [tuple(int(n) for n in concrete_type(p.type, sizes).shape) for p in program.graph.params])
    data["steps"] = step_data(program, timed, numbering.numbers, sizes)
    data["kernels"] = kernel_data(program, code)
    data["arena"] = arena_data(program, layout)
    for origin in data["origins"]:
        origin.update(seconds=0.0 if timed else None, flops=0.0, bytes=0)
    for step in data["steps"]:
        for k, part in step["origins"]:
            if k >= 0:
                origin = data["origins"][k]
                origin["flops"] += step["flops"] * part
                origin["bytes"] += int(step["bytes"] * part)
                if step["seconds"] is not None:
                    origin["seconds"] += step["seconds"] * part
