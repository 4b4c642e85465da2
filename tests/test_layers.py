"""The map of the package, as tests: imports point downwards, nothing goes round, LLVM and extras keep their place."""

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Low to high. A module imports from its own row or a lower one. `__init__` is the public API, `import tenon as tn`.
LAYERS = """
records atomic context_values types devices target dims errors error_hints error_context migration_hints unpacked_rows config observe locks gc_control buffer_ownership dlpack
tensor_file tracebacks
graph
ops
sharding
autodiff passes loops dataflow
llvm
program
backends
runtime
placement
pipelining
cpython
pipeline
autocast tensor_state slice_stores in_place tensor_views array_conversion tensor eager
capture
jit transforms random linalg extend
amp array_api pytorch_names pytorch_methods pytorch_in_place pytorch_functions pytorch_scripting multiprocessing distributed distributions fft special nn optim data interop planning serialization debug testing utils models func autograd
__init__
demos onnx torch
serve cli
__main__
"""
RANK = {name: rank for rank, row in enumerate(LAYERS.strip().splitlines()) for name in row.split()}

# Who may import what is heavy or optional; everybody may import the other core dependencies.
ONLY_IN = {
    "llvmlite": {"backends", "cpython", "llvm"},
    "sklearn": {"data"},
    "rich": {"debug"},
    "matplotlib": {"debug"},
    "torch": {"interop", "torch"},
    "onnx": {"onnx"},
    "mpi4py": {"distributed"},
}


def modules(root: Path) -> dict[str, Path]:
    """Every module below `root`/tenon by its dotted name; a package stands for its `__init__`."""
    files = {path.relative_to(root).with_suffix(""): path for path in sorted((root / "tenon").rglob("*.py"))}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in files.items()}


def imports(module: str, path: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """(line, imported module) for each import in the file, also inside functions, but not under `if TYPE_CHECKING`."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]

    def visit(node: ast.AST) -> Iterator[tuple[int, str]]:
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=orelse):
                for child in orelse:
                    yield from visit(child)
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                if level:
                    base = ".".join(filter(None, [*package.split(".")[: len(package.split(".")) - level + 1], base]))
                for alias in names:
                    submodule = f"{base}.{alias.name}"
                    yield node.lineno, submodule if submodule in known else str(base)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from visit(child)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")))


def row(module: str) -> str:
    """The name in LAYERS that a module of the package belongs to: `tenon.graph.ir` to `graph`."""
    return (module.split(".") + ["__init__"])[1]


def violations(root: Path) -> Iterator[str]:
    known = modules(root)
    for module, path in known.items():
        if row(module) not in RANK:
            yield f"{path.relative_to(root)}: {row(module)} has no layer; give it one in tests/test_layers.py"
            continue
        for line, imported in imports(module, path, known):
            where = f"{path.relative_to(root)}:{line}"
            top = imported.split(".")[0]
            if top == "tenon" and RANK.get(row(imported), -1) > RANK[row(module)]:
                yield f"{where}: {row(module)} imports {row(imported)}, which is above it"
            if row(module) not in ONLY_IN.get(top, {row(module)}):
                yield f"{where}: {row(module)} imports {top}, which only {' and '.join(sorted(ONLY_IN[top]))} may"


def cycle(root: Path) -> list[str]:
    known = modules(root)
    needs = {
        module: {there for _, there in imports(module, path, known) if there in known and there != module}
        for module, path in known.items()
    }
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def python(code: str) -> str:
    """What a fresh interpreter in this checkout prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
                          env=environment).stdout


def test_imports_point_downwards() -> None:
    assert not (bad := list(violations(ROOT))), "\n".join(bad)


def test_no_import_cycle() -> None:
    assert not (found := cycle(ROOT)), " -> ".join(found)


def test_nothing_is_tracked_that_is_ignored() -> None:
    """A tracked link to an environment, say, takes the place of the environment itself in the checkout that it meets."""
    found = subprocess.run(["git", "ls-files", "-ci", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("no checkout of git")
    assert not found.stdout, f"ignored, and tracked: {found.stdout}"


def test_import_loads_neither_llvm_nor_extras() -> None:
    loaded = python("import sys, tenon; print(*sys.modules)").split()
    assert not set(ONLY_IN) & set(loaded)


def test_import_takes_under_a_fifth_of_a_second() -> None:
    # Computing time, NumPy's own share included.  NumPy alone takes 0.08 s on a quiet machine; where it takes longer
    # now, because other work shares the caches, the limit is as much longer.
    code = ("from time import thread_time as now; a = now(); import numpy, ml_dtypes; b = now(); import tenon; "
            "print(b - a, now() - a)")
    python(code)  # the first run writes bytecode and warms the file cache
    runs = sorted(tuple(map(float, python(code).split())) for _ in range(7))
    assert any(whole < 0.2 * max(1.0, numpys / 0.08) for numpys, whole in runs), runs


def package(root: Path, **files: str) -> Path:
    """A package called tenon made of `files`; `graph__ir` is graph/ir.py."""
    for name, text in files.items():
        path = root / "tenon" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import tenon.jit", "tenon/graph/ir.py:1: graph imports jit, which is above it"),
        ("def f():\n    from ..ops import add", "tenon/graph/ir.py:2: graph imports ops, which is above it"),
        ("from tenon import nn", "tenon/graph/ir.py:1: graph imports nn, which is above it"),
        ("import tenon as tn", "tenon/graph/ir.py:1: graph imports __init__, which is above it"),
        ("import llvmlite.ir", "tenon/graph/ir.py:1: graph imports llvmlite, which only backends and cpython and llvm may"),
        ("from tenon.types import DType", None),
        ("from . import text", None),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tenon.jit", None),
    ],
)
def test_the_checker_sees_upward_imports(tmp_path: Path, text: str, complaint: str | None) -> None:
    root = package(tmp_path, types="", jit="", ops="", nn="", graph__text="", graph__ir=text)
    assert list(violations(root)) == ([complaint] if complaint else [])


def test_the_checker_wants_a_layer_for_every_module(tmp_path: Path) -> None:
    assert "misc has no layer" in next(violations(package(tmp_path, misc="")))


def test_the_checker_sees_cycles(tmp_path: Path) -> None:
    ring = {"passes__fold": "from .expand import a", "passes__expand": "def f():\n    import tenon.passes.fold"}
    assert len(cycle(package(tmp_path / "ring", **ring))) == 3
    line = {"passes__fold": "from .expand import a", "passes__expand": "import tenon.graph", "graph": ""}
    assert not cycle(package(tmp_path / "line", **line))
