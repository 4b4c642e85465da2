"""Turn the operator definitions of `tenon.ops` into reference pages: docs/api/operators.md and one page a family.

An op is documented where it is defined: name, signature, doc and examples are those of its `Op` object. A family is the
module of `tenon.ops` that holds it.
"""

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.md": page(name, doc, ops) for name, doc, ops in families()}
    pages["operators.md"] = index([name.removesuffix(".md") for name in pages])
    for name, text in pages.items():
        write_if_changed(folder / name, text)
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()


def families() -> Iterator[tuple[str, str, list[Any]]]:
    """(module name, module doc, ops by name) for each module of `tenon.ops` that defines operators."""
    if importlib.util.find_spec("tenon.ops") is None:  # until the package has operators
        return
    package, registry = importlib.import_module("tenon.ops"), importlib.import_module("tenon.graph.op").OPS
    left = dict(registry)
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"tenon.ops.{info.name}")
        names = sorted(name for name, op in left.items() if any(op is value for value in vars(module).values()))
        if names:
            yield info.name, inspect.getdoc(module) or "", [left.pop(name) for name in names]
    if left:
        yield "other", "Operators that no module of `tenon.ops` names.", [left[name] for name in sorted(left)]


def index(names: list[str]) -> str:
    listed = "\n".join(names)
    body = f"```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n" if names else "No operators are defined yet.\n"
    return f"# Operators\n\nGenerated from the definitions in `tenon/ops`.\n\n{body}"


def page(name: str, doc: str, ops: list[Any]) -> str:
    return "\n".join([f"# {name}\n\n{doc}\n", *map(entry, ops)])


def entry(op: Any) -> str:
    examples = "\n".join(op.examples)
    return f"## {op.name}\n\n`{op.name}{op.signature}`\n\n{op.doc}\n\n```text\n{examples}\n```\n"


def write_if_changed(path: Path, text: str) -> None:
    """Leave an equal file alone, so that Sphinx does not build its page again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
