"""A module -> a tree of its modules with parameter counts and the shapes last seen, as text or HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenon.records import dataclass

MAX_ROWS = 200


@dataclass(frozen=True)
class ModuleRow:
    """One line of the tree."""

    branches: str       # the lines drawn to the left
    title: str          # "hidden: Linear(784, 512)"
    count: int
    seen: str           # the type of its last result


def as_text(module: Any) -> str:
    """The tree in three columns."""
    rows = list(rows_of(module))
    wide = max(len(row.branches + row.title) for row in rows)
    digits = max(len(f"{row.count:,}") for row in rows)
    lines = []
    for k, row in enumerate(rows):
        what = " parameters" if k == 0 else ""
        lines.append(f"{row.branches + row.title:{wide}}  {row.count:>{digits},}{what}  {row.seen}".rstrip())
    return "\n".join(lines)


def as_html(module: Any) -> str:
    """The tree as a table for notebooks."""
    style = "text-align:left;font-family:monospace;white-space:pre"
    body = "".join(f'<tr><td style="{style}">{escape(row.branches + row.title)}</td><td>{row.count:,}</td>'
                   f'<td style="{style}">{escape(row.seen)}</td></tr>' for row in rows_of(module))
    head = "<tr><th>module</th><th>parameters</th><th>output</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def escape(text: str) -> str:
    """The text with what HTML would read as markup written out; the library's `html` takes long to import."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def rows_of(module: Any) -> Iterator[ModuleRow]:
    """The rows of the tree, at most MAX_ROWS of them."""
    for k, row in enumerate(_rows(module, "", "", "")):
        if k == MAX_ROWS:
            yield ModuleRow("", "...", 0, "")
            return
        yield row


def _rows(module: Any, name: str, branches: str, below: str) -> Iterator[ModuleRow]:
    title = f"{type(module).__name__}({module.extra_repr()})".removesuffix("()")
    title = f"{name}: {title}" if name else title
    yield ModuleRow(branches, title, count_parameters(module), str(getattr(module, "_seen", "")))
    children = list(module.named_children())
    for k, (key, child) in enumerate(children):
        last = k == len(children) - 1
        yield from _rows(child, key, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def count_parameters(module: Any) -> int:
    """The number of elements of all parameters of a module."""
    return sum(int(p.size) for p in module.parameters())
