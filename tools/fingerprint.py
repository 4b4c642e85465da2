"""The benchmark models -> hashes of their optimised graphs, and of the LLVM text of every kernel and native function.

    python tools/fingerprint.py > before.txt                # all: about a minute
    python tools/fingerprint.py --compare before.txt        # names what differs; the exit code says whether

A change that only moves or renames code leaves every line as it was.  Of kernels only the text is made, and nothing is
run.  A line is a model, what is hashed, its name and number, and the hash, which is the same in every process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WORKLOADS = ("mlp", "small_cnn", "resnet18", "lstm", "four_matmuls", "four_convs", "mobilenet_1", "bert_1",
             "bert_1_bf16", "gpt", "gpt_bf16")
Text = tuple[str, str, str]     # kind, name, text


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    options.add_argument("--compare", type=Path, metavar="FILE", help="what was printed before")
    given = options.parse_args()
    if unknown := [name for name in given.models if name not in MODELS]:
        options.error(f"no model is named {unknown[0]}")
    os.environ |= {"TENON_CACHE": "off", "TENON_THREADS": "2"}      # what is in the cache would not be made again
    sys.path[:0] = [str(ROOT)]
    names = [name for name in MODELS if name in (given.models or MODELS)]
    lines = (line for name in names for line in hashes(name))
    if given.compare is None:
        for line in lines:
            print(line, flush=True)
        return 0
    before = [line for line in given.compare.read_text().splitlines() if line.split(" ")[0] in names]
    changed = list(differences(before, list(lines)))
    print("\n".join(changed) or f"{len(before)} hashes, all as before")
    return bool(changed)


def differences(before: Iterable[str], after: Iterable[str]) -> Iterator[str]:
    """What is gone, new, or has another hash."""
    old, new = (dict(line.rsplit(" ", 1) for line in lines) for lines in (before, after))
    yield from (f"gone: {name}" for name in old if name not in new)
    yield from (f"new: {name}" for name in new if name not in old)
    yield from (f"differs: {name}" for name in new if name in old and old[name] != new[name])


def hashes(model: str) -> Iterator[str]:
    """The lines of one model."""
    seen: dict[str, int] = {}
    for kind, name, text in MODELS[model]():
        label = f"{model} {kind} {name}"
        count = seen[label] = seen.get(label, 0) + 1
        yield f"{label} {count} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def workload_texts(name: str) -> Iterator[Text]:
    """Of each program that a step is compiled to: the graph after all passes, and the loops and the LLVM text of each
    kernel."""
    from benchmarks.models import WORKLOADS, tenon_capture
    from tenon.graph.text import print_graph
    from tenon.observe import subscribe

    with_text_alone()
    captured = tenon_capture(WORKLOADS[name])
    programs: list[Any] = []
    stop = subscribe(lambda event: programs.append(event.fields["program"]) if event.name == "program" else None)
    _ = captured.program
    stop()
    yield "captured", captured.graph.name, print_graph(captured.graph, locations=False)
    packings = {program.packing for program in programs}       # whose graphs have no text
    for program in programs:
        if program not in packings:
            yield "graph", program.graph.name, print_graph(program.graph, locations=False)
        for unit in program.kernels:
            yield "loops", unit.name, unit.loops
            yield from (("llvm", variant.name, variant.ir) for variant in (unit, *unit._variants.values()))


def with_text_alone() -> None:
    """Let nobody compile a kernel before a run wants it, since there is none; that would take most of the time."""
    from tenon.backends.cpu import compile_graph

    compile_graph.start = lambda unit, pool: None


def native_texts() -> Iterator[Text]:
    """Of the functions that run programs, answer calls and compute eagerly, by the library that they are in."""
    from tenon.capture.preload_fast_calls import state_slots
    from tenon.cpython.jit_fast_call import library
    from tenon.eager.native_fast_path import _machine
    from tenon.llvm import function_builder
    from tenon.llvm.native_thread_pool import default_sleep, entries
    from tenon.program.step_executor import driver

    texts: list[Text] = []
    make = function_builder.library

    def note(name: str, *constants: int, module_of: Callable[..., Any]) -> Any:
        texts.append(("llvm", name.replace(" ", "_"), str(module_of(*constants))))
        return make(name, *constants, module_of=module_of)

    function_builder.library = note
    driver(), entries(default_sleep()), library(state_slots()), _machine()
    function_builder.library = make
    yield from texts


MODELS: dict[str, Callable[[], Iterator[Text]]] = {
    "native": native_texts,         # first: what a program is run by is made once
    **{name: partial(workload_texts, name) for name in WORKLOADS}}

if __name__ == "__main__":
    sys.exit(main())
