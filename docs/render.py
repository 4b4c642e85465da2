"""Docstrings -> Markdown, and the small pieces that generated pages are made of.

A docstring is plain text: paragraphs, blocks of `>>>` examples, and indented blocks, which are kept as they stand.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


def markdown(doc: str) -> str:
    """Words with Markdown's own marks taken literally; examples and indented blocks are fenced."""
    return "\n\n".join(map(paragraph, blocks(inspect.cleandoc(doc))))


def blocks(doc: str) -> Iterator[str]:
    """The paragraphs of a text.  An example goes on to the next blank line, an indented block to the next plain line.
    """
    for text in re.split(r"\n\n+", doc):
        before, found, example = text.partition("\n>>> ")
        if found and not text.startswith((" ", ">>> ")):
            yield before
            text = ">>> " + example
        yield text


def paragraph(text: str) -> str:
    """One of them: fenced where it is code, with Markdown's own marks taken literally where it is words."""
    if text.startswith(">>> "):
        return fence("pycon", text)
    if text.startswith("    "):
        return fence("text", textwrap.dedent(text))
    if text.startswith("| ") or re.match(r"[*-] ", text):
        return text
    return "".join(part if part.startswith("`") else literally(part) for part in re.split(r"(`[^`]+`)", text))


def literally(text: str) -> str:
    return re.sub(r"([\\*_<>\[\]`#$])", r"\\\1", text)


def fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def signature(of: Callable[..., Any]) -> str:
    """The parameters of a function or class, without their annotations."""
    try:
        found = inspect.signature(of)
    except (TypeError, ValueError):  # a class of C, a dtype
        return ""
    parameters = [p.replace(annotation=p.empty, default=shown(p.default)) for p in found.parameters.values()]
    return str(found.replace(parameters=parameters, return_annotation=found.empty))


class shown:
    """A default as one would write it: `tn.float32`, a function by its name."""

    def __new__(cls, value: Any) -> Any:
        return value if value is inspect.Parameter.empty else super().__new__(cls)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return getattr(self.value, "__name__", None) or repr(self.value)


def contents(names: Iterable[str], depth: int = 1) -> str:
    return "\n".join(["```{toctree}", f":maxdepth: {depth}", "", *names, "```"])


def write_pages(folder: Path, pages: dict[str, str]) -> None:
    """Write each page that differs, so that Sphinx builds no other again, and remove pages that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()
