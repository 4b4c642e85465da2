"""Turn the operator definitions of `tenon.ops` into reference pages: docs/api/operators.md and one page a family.

An op is documented where it is defined: name, signature, doc and examples are those of its `Op` object. A family is a
module of `tenon.ops`.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

from tenon import ops
from tenon.graph.op import OPS, Op


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.md": page(name, doc, operators) for name, doc, operators in families()}
    pages["operators.md"] = index([name.removesuffix(".md") for name in pages])
    for name, text in pages.items():
        write_if_changed(folder / name, text)
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()


def families() -> Iterator[tuple[str, str, list[Op]]]:
    """(family, its text, its ops by name). Families come in the order in which they build on each other."""
    left = dict(OPS)
    for family in ops.FAMILIES:
        names = sorted(name for name, op in left.items() if any(op is value for value in vars(family).values()))
        yield family.__name__.rpartition(".")[2], inspect.getdoc(family) or "", [left.pop(name) for name in names]
    if left:
        yield "other", "Operators outside `tenon/ops`.", [left[name] for name in sorted(left)]


def index(names: list[str]) -> str:
    listed = "\n".join(names)
    return f"""# Operators

Generated from the definitions in `tenon/ops`.

```{{toctree}}
:maxdepth: 1

{listed}
```
"""


def page(name: str, doc: str, operators: list[Op]) -> str:
    return "\n".join([f"# {name}\n\n{doc}\n", *map(entry, operators)])


def entry(op: Op) -> str:
    examples = "\n".join(["```text", *op.examples, "```"]) if op.examples else ""
    return f"## {op.name}\n\n`{op.name}({op.signature})`\n\n{op.doc}\n\n{examples}\n"


def write_if_changed(path: Path, text: str) -> None:
    """Leave an equal file alone, so that Sphinx does not build its page again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
