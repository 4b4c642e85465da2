"""Golden tests of IR text: a command, its input, the text that it must print.

A `.test` file holds cases one after another. Each has a title (comment lines), a command line as a shell would take
it, the input text, a line `---`, and the expected output:

    # Multiplying by one disappears.
    $ tenon opt --passes simplify,drop_dead -
    def f(x: f32[2]):
        v0: f32[2] = mul(x, 1.0)
        return v0
    ---
    def f(x: f32[2]):
        return x

    # The next case ...

`pytest tests/golden` compares; `pytest tests/golden --update-golden` rewrites what stands below each `---`, to be read
in the diff before it is committed. A command that fails prints its message and `(exit 1)`, which is compared as well.
"""

import contextlib
import difflib
import io
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

Run = Callable[[str, str], str]  # command line and input text to printed text


@dataclass(frozen=True)
class Case:
    title: str
    command: str
    input: str
    expected: str

    def __str__(self) -> str:
        title = "".join(f"# {line}\n" for line in self.title.splitlines())
        return f"{title}$ {self.command}\n{self.input}---\n{self.expected}"


class GoldenMismatch(AssertionError):
    """What was printed is not what stands in the file; the message is the difference."""


def check(path: Path, index: int, run: Run) -> None:
    case = parse(path.read_text(encoding="utf-8"))[index]
    printed = tidy(run(case.command, case.input))
    if printed != case.expected:
        expected_and_printed = case.expected.splitlines(), printed.splitlines()
        difference = difflib.unified_diff(*expected_and_printed, "expected", "printed", lineterm="", n=100)
        raise GoldenMismatch("\n".join([f"$ {case.command}", *difference, "--update-golden accepts what was printed"]))


def update(path: Path, index: int, run: Run) -> None:
    cases = parse(path.read_text(encoding="utf-8"))
    cases[index] = replace(cases[index], expected=tidy(run(cases[index].command, cases[index].input)))
    path.write_text("\n".join(map(str, cases)), encoding="utf-8")


def parse(text: str) -> list[Case]:
    """The cases of a file. A case starts at its `$` line and the comment lines directly above that."""
    lines = text.splitlines()
    commands = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    starts = [title_above(command, lines) for command in commands]
    if any(line.strip() for line in lines[: starts[0] if starts else None]):
        raise ValueError("text before the first command line; a title is a comment directly above its command")
    return [parse_case(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)])]


def title_above(command: int, lines: list[str]) -> int:
    """The first of the comment lines that end directly above line `command`."""
    while command and lines[command - 1].startswith("#"):
        command -= 1
    return command


def parse_case(lines: list[str]) -> Case:
    command = next(at for at, line in enumerate(lines) if line.startswith("$ "))
    rule = next((at for at, line in enumerate(lines) if line == "---"), len(lines))
    return Case(
        title="\n".join(line.removeprefix("#").strip() for line in lines[:command]),
        command=lines[command].removeprefix("$ "),
        input=tidy("\n".join(lines[command + 1 : rule])),
        expected=tidy("\n".join(lines[rule + 1 :])),
    )


def tidy(text: str) -> str:
    """No blank lines at either end, no blanks at line ends, one newline at the end of what is left."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return lines + "\n" if lines else ""


def run(command: str, text: str) -> str:
    """What the command line prints in this process with `text` as its standard input."""
    from tenon.cli import main  # not above: collecting golden files should not need a working package

    program, *arguments = shlex.split(command)
    if program != "tenon":
        raise ValueError(f"a golden command starts with tenon: {command}")
    printed, stdin = io.StringIO(), sys.stdin
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        try:
            code = main(arguments)
        except SystemExit as exit:
            code = exit.code
        finally:
            sys.stdin = stdin
    return printed.getvalue() + (f"(exit {code})\n" if code else "")
