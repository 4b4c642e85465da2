"""The golden-test harness itself, on a command that numbers its input lines."""

from pathlib import Path

import pytest

from golden.harness import GoldenMismatch, check, parse, run, update

FILE = """\
# Lines get numbers.
# Two comment lines make one title.
$ number --from 1
a
b
---
1 a
2 b

$ number --from 5
# a comment of the input
---
old
"""


def number(command: str, text: str) -> str:
    first = int(command.split()[-1])
    return "\n".join(f"{at} {line}" for at, line in enumerate(text.splitlines(), first)) + "\n\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "number.test"
    path.write_text(FILE)
    return path


def test_a_file_is_its_cases() -> None:
    first, second = parse(FILE)
    assert first.title == "Lines get numbers.\nTwo comment lines make one title."
    assert (first.command, first.input, first.expected) == ("number --from 1", "a\nb\n", "1 a\n2 b\n")
    assert (second.title, second.input, second.expected) == ("", "# a comment of the input\n", "old\n")
    assert f"{first}\n{second}" == FILE


def test_text_above_the_first_command_is_refused() -> None:
    with pytest.raises(ValueError, match="before the first command"):
        parse("def f():\n    pass\n\n" + FILE)


def test_equal_text_passes(path: Path) -> None:
    check(path, 0, number)


def test_other_text_fails_with_the_difference(path: Path) -> None:
    with pytest.raises(GoldenMismatch, match=r"-old\n\+5 # a comment of the input"):
        check(path, 1, number)


def test_update_rewrites_one_expected_text_and_nothing_else(path: Path) -> None:
    update(path, 1, number)
    assert path.read_text() == FILE.replace("old", "5 # a comment of the input")
    check(path, 1, number)


def test_a_failing_command_shows_its_exit_code() -> None:
    assert run("tenon no-such-command", "").endswith("(exit 2)\n")


def test_only_tenon_is_run() -> None:
    with pytest.raises(ValueError, match="starts with tenon"):
        run("rm -r /", "")
