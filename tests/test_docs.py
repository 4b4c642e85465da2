"""Every page runs: the blocks of README.md and docs/ are executed in order, as a reader would.

```python   runs in the page's own module, which all python blocks of the page share; the working folder is a fresh one
```console  runs its `$ tenon ...` lines (no shell); lines below a command, if any, are what it must print, with its
           message and `(exit 1)` where it fails
```text     after `<!-- output -->` is what the python block above must print; after `<!-- error -->`, the message of
            the exception that it must raise

`...` in expected text stands for anything; blanks are compared loosely. `<!-- not run: why -->` skips the next block.
`pytest tests/test_docs.py --update-golden` rewrites the expected text that is wrong, to be read in the diff.
"""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tenon import pipeline
from tenon.graph.kernels import KERNELS

ROOT = Path(__file__).parent.parent
NEEDS = {"pytorch.md": "torch"}     # pages about libraries that need not be there
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"api", "_build"} & set(p.parts))]


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of the first line of text, counted from 1
    marker: str  # the comment directly above: "output", "error", "not run: why" or nothing


def blocks(page: str) -> Iterator[Block]:
    marker = ""
    for token in MarkdownIt().parse(page):
        comment = re.fullmatch(r"<!--\s*(output|error|not run: .+?)\s*-->\s*", token.content)
        if token.type == "fence" and token.map:
            yield Block(token.info.strip(), token.content, token.map[0] + 2, marker)
        marker = comment[1] if comment else ""


Found = list[tuple[Block, str]]  # blocks whose text is not what it should be, and what it should be


class Mismatch(AssertionError):
    """A block says one thing and the program another."""


def check_page(page: Path, folder: Path) -> None:
    """Execute the blocks of a page; raises Mismatch, with the first difference, where the page is wrong."""
    for block, printed in run_page(page, folder):
        raise Mismatch(f"{page.name}:{block.line}: the page says\n{block.text}\nbut it is\n{printed}")


def update_page(page: Path, folder: Path) -> None:
    """Execute the blocks of a page and rewrite those that are wrong."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block, printed in reversed(run_page(page, folder)):
        lines[block.line - 1 : block.line - 1 + len(block.text.splitlines())] = printed.splitlines()
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def module_name(page: Path) -> str:
    """What a page is called as a module: its own name, unless that is a package's."""
    name = page.stem.lower()
    return f"{name}_page" if importlib.util.find_spec(name) else name


def run_page(page: Path, folder: Path) -> Found:
    """Execute the blocks of a page; `folder` is the working folder and gets the page's python as one file."""
    todo = [block for block in blocks(page.read_text(encoding="utf-8")) if not block.marker.startswith("not run")]
    module = types.ModuleType(module_name(page))
    module.__file__ = f"{module.__name__}.py"
    write_python(todo, folder / module.__file__)
    printed, error, wrong = "", None, []
    with contextlib.chdir(folder), registered(module), as_before(KERNELS, pipeline.PASSES, pipeline.BACKENDS):
        for block in todo:
            if error and block.marker != "error":
                raise error
            if block.language == "python":
                printed, error = run_python(block, module)
                continue
            if block.marker == "error":
                assert error, f"{page.name}:{block.line}: the block above should have raised"
                printed, error = str(error), None
            if block.language == "console":
                expected = run_console(block)
            elif block.marker in ("output", "error"):
                expected = block.text if agree(block.text, printed) else printed.rstrip() + "\n"
            else:
                continue
            if expected != block.text:
                wrong.append((block, expected))
        if error:
            raise error
    return wrong


def write_python(todo: list[Block], path: Path) -> None:
    """The python blocks on the lines that they have in the page, so that source can be found and line numbers agree."""
    lines: list[str] = []
    for block in todo:
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextlib.contextmanager
def registered(module: types.ModuleType) -> Iterator[None]:
    """`module` is importable, as dataclasses and `inspect` expect of code they look at."""
    assert module.__name__ not in sys.modules
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]


@contextlib.contextmanager
def as_before(*tables: dict[Any, Any]) -> Iterator[None]:
    """What a page adds to Tenon goes with the page: other tests run in this process."""
    before = [dict(table) for table in tables]
    optimize = list(pipeline.OPTIMIZE)
    try:
        yield
    finally:
        pipeline.OPTIMIZE[:] = optimize
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)


def run_python(block: Block, module: types.ModuleType) -> tuple[str, Exception | None]:
    with contextlib.redirect_stdout(printed := io.StringIO()):
        try:
            code = compile("\n" * (block.line - 1) + block.text, str(module.__file__), "exec", dont_inherit=True)
            exec(code, vars(module))
        except Exception as error:
            return printed.getvalue(), error
    return printed.getvalue(), None


def run_console(block: Block) -> str:
    """The block as it should be: the output of a command is kept where it agrees, or where none is shown."""
    told = re.match(r"(?:(?!\$ ).*\n)*", block.text)[0]
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        program, *arguments = shlex.split(command, comments=True)
        printed = run_tenon(arguments, "(exit " in expected) if program == "tenon" else expected
        keep = not expected.strip() or agree(expected, printed)
        told += f"$ {command}\n" + (expected if keep else printed)
    return told


def run_tenon(arguments: list[str], may_fail: bool) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tenon", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if may_fail and done.returncode:
        return f"{done.stdout}{done.stderr}(exit {done.returncode})\n"
    assert done.returncode == 0, f"$ tenon {shlex.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def agree(expected: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected.strip(), printed.strip(), flags)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    if request.config.getoption("update_golden"):
        update_page(page, tmp_path)
    else:
        check_page(page, tmp_path)


def run_text(text: str, folder: Path) -> None:
    (folder / "page.md").write_text(text)
    check_page(folder / "page.md", folder)


PAGE = """
# A page

```python
import inspect
def f(x):
    return x / 2
```

Text between.

```python
print(f(5), "is a half")
print(inspect.getsource(f))
```
<!-- output -->
```text
2.5 is ...
def f(x):
    return x / 2
```

```python
f("a")
```

<!-- error -->
```text
unsupported operand type(s) ...
```

<!-- not run: it never ends -->
```python
while True: pass
```

```console
$ tenon env
Tenon's environment
...
$ make coffee
```
"""


def test_blocks_share_names_and_are_compared(tmp_path: Path) -> None:
    run_text(PAGE, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.5 is", "2.4 is"),
        ("operand type", "operator type"),
        ("Tenon's", "Nobody's"),
        ("tenon env", "tenon fly"),
        ("f(5)", "g(5)"),
    ],
)
def test_a_page_that_is_wrong_fails(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, NameError)):
        run_text(PAGE.replace(old, new), tmp_path)


def test_an_error_that_does_not_come_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="should have raised"):
        run_text("```python\nx = 1\n```\n<!-- error -->\n```text\nno\n```\n", tmp_path)


def test_the_last_block_may_not_raise(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_text("```python\n1 / 0\n```\n", tmp_path)


def test_update_rewrites_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("2.5 is ...", "2.4 is ..."))
    update_page(page, tmp_path)
    assert page.read_text() == PAGE.replace("2.5 is ...", "2.5 is a half")
    check_page(page, tmp_path)
