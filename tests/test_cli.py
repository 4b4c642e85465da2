"""The command line and what it draws with."""

import argparse
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tenon
from tenon import cli
from tenon.debug import console
from tenon.errors import TenonError

ROOT = Path(__file__).parent.parent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_env_says_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENON_SHOW", "graph")
    assert cli.main(["env"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("tenon", "python", "numpy", "llvmlite", "cpu", "threads", "TENON_SHOW"))


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert cli.COMMANDS[name].help[:20] in capsys.readouterr().out


def test_the_benchmarks_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "elementwise", "--seconds", "0.001"]) == 0
    assert "Tenon/NumPy" in capsys.readouterr().out
    assert cli.main(["bench", "nothing"]) == 1
    assert "there are table, machine" in capsys.readouterr().err


def test_the_benchmarks_run_from_an_installed_package(tmp_path: Path) -> None:
    """They lie in the package, which has no repository around it; its processes find them too, and no namesake does."""
    root = Path(cli.__file__).parent.parent
    shutil.copytree(root / "tenon", tmp_path / "site" / "tenon", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "benchmarks", tmp_path / "site" / "tenon" / "benchmarks",
                    ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "benchmarks").mkdir()
    program = ("from tenon import cli; assert cli.main(['bench', 'elementwise', '--seconds', '0.001']) == 0; "
               "from benchmarks.processes import module; import subprocess, sys; "
               "subprocess.run([sys.executable, *module('matmul', '--help')], check=True)")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(tmp_path / "site")})
    assert done.returncode == 0, done.stderr
    assert "Tenon/NumPy" in done.stdout and "Products of f32 matrices" in done.stdout


def test_a_package_without_benchmarks_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli.tenon, "__file__", str(tmp_path / "tenon" / "__init__.py"))
    assert cli.main(["bench", "elementwise"]) == 1
    assert "there are no benchmarks beside the package" in capsys.readouterr().err


def test_an_unknown_subcommand_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["fly"])
    assert "env" in capsys.readouterr().err


def test_a_mistake_of_the_user_is_a_message_without_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(arguments: argparse.Namespace) -> int:
        raise TenonError("matmul: inner sizes differ")

    monkeypatch.setitem(cli.COMMANDS, "env", cli.Command("", refuse))
    assert cli.main(["env"]) == 1
    assert "matmul: inner sizes differ" in (err := capsys.readouterr().err) and "Traceback" not in err


@pytest.mark.parametrize("command", [["opt", "nowhere.txt"], ["show", "nowhere.py:f"]])
def test_a_file_that_is_not_there_is_a_message(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 1
    assert capsys.readouterr().err.startswith("there is no file 'nowhere.")


def test_a_mistake_in_a_file_is_not_blamed_on_the_caller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.txt").write_text("def f(x: f32[2]):\n    v0: f32[2] = fly(x)\n    return v0\n")
    assert cli.main(["opt", str(tmp_path / "f.txt")]) == 1
    assert capsys.readouterr().err == "graph text, line 2: no operator named 'fly'\n  why: v0: f32[2] = fly(x)\n"


@pytest.mark.parametrize(("program", "types", "message"), [
    ("import nothing_here", [], "ModuleNotFoundError: No module named 'nothing_here'\n  program.py:1 "),
    ("def f(:", [], "SyntaxError: invalid syntax\n  program.py:1 "),
    ("def f(x): return x", [], "TypeError: f() missing 1 required positional argument: 'x'\n"),
    ("def f(x):\n    raise ValueError('no')", ["f32[3]"], "ValueError: no\n  program.py:2 "),
    ("def f(x): return x", ["f32[-1]"], "a size must not be negative"),
    ("def f(x): return x", ["f32[99999999999999]"], "there is no such memory"),
])
def test_what_a_users_file_raises_is_a_message(program: str, types: list[str], message: str, tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    assert cli.main(["show", f"{file}:f", *types]) == 1
    printed = capsys.readouterr().err
    assert message in printed and "Traceback" not in printed and "tenon/" not in printed


def test_a_file_that_holds_no_text_is_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "graph.txt"
    file.write_bytes(b"\xff\xfe")
    assert cli.main(["opt", str(file)]) == 1
    assert "graph.txt holds no text" in capsys.readouterr().err


def test_opt_knows_the_passes_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "import tenon as tn\n@tn.graph_pass\ndef pass_of_a_file(graph):\n    return graph\n"
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "f.txt").write_text("def f(x: f32[2]):\n    return x\n")
    command = ["opt", str(tmp_path / "f.txt"), "--load", str(tmp_path / "mine.py"), "--passes", "pass_of_a_file"]
    try:
        assert cli.main(command) == 0
    finally:
        tenon.remove_pass("pass_of_a_file")
    assert capsys.readouterr().out == "def f(x: f32[2]):\n    return x\n"


def test_a_reader_who_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-m", "tenon", "env"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize("have_rich", [False, True])
def test_a_table_shows_types_as_they_are(have_rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if have_rich:
        pytest.importorskip("rich")
    monkeypatch.setattr(console, "HAVE_RICH", have_rich)
    console.table("[a] title", ["value", "ms"], [("f32[n, 3]", 1.5), ("[red]x", 12)], file=(screen := Terminal()))
    assert all(text in screen.getvalue() for text in ("[a] title", "f32[n, 3]", "[red]x", " 1.5", "12"))


@pytest.mark.parametrize("have_rich", [False, True])
@pytest.mark.parametrize("screen", [io.StringIO, Terminal])
def test_progress_gives_every_item_and_draws_only_on_a_terminal(
    have_rich: bool, screen: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    if have_rich:
        pytest.importorskip("rich")
    monkeypatch.setattr(console, "HAVE_RICH", have_rich)
    monkeypatch.setattr(sys, "stderr", screen())
    assert list(console.progress(iter([3, 1, 2]), "[b] read", total=3)) == [3, 1, 2]
    assert ("[b] read" in sys.stderr.getvalue()) == sys.stderr.isatty()
