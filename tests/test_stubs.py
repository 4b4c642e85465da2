"""What editors and type checkers are told of Tenon is what is there."""

import doctest
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import tenon as tn
from tenon.graph.op import Op
from tenon.ops import PUBLIC

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "tests" / "typing"


@pytest.fixture(scope="module")
def stubs():
    spec = importlib.util.spec_from_file_location("generate_stubs", ROOT / "tools" / "generate_stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(tmp_path, *files):
    """What `mypy --strict` says to a user who has no settings of his own."""
    return api.run(["--strict", "--config-file=", "--no-error-summary", f"--cache-dir={tmp_path}", *map(str, files)])[0]


def test_the_stubs_are_what_the_definitions_say(stubs):
    for path, text in stubs.texts().items():
        assert path.read_text() == text, f"{path.name} is old: python tools/generate_stubs.py"


def test_programs_and_examples_pass_and_mistakes_do_not(tmp_path):
    wrong = tmp_path / "mistakes.py"
    wrong.write_text((PROGRAMS / "mistakes.txt").read_text())
    expected = {(k, code) for k, line in enumerate(wrong.read_text().splitlines(), 1)
                for code in re.findall(r"  # ([a-z-]+)$", line)}
    said = checked(tmp_path, PROGRAMS / "program.py", wrong, *sorted((ROOT / "examples").glob("*.py")))
    assert all("mistakes.py" in line for line in said.splitlines()), said
    assert {(int(k), code) for k, code in re.findall(r"mistakes.py:(\d+): error: .*\[([a-z-]+)\]", said)} == expected


def test_pyright_finds_nothing_in_examples_in_its_strict_mode(tmp_path):
    pytest.importorskip("pyright")
    for path in (PROGRAMS / "program.py", *(ROOT / "examples").glob("*.py")):
        (tmp_path / path.name).write_text(path.read_text())
    settings = {"include": ["."], "extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    found = subprocess.run([sys.executable, "-m", "pyright", "-p", tmp_path, "--pythonpath", sys.executable],
                           capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def form(value):
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"tuple[{', '.join(map(form, value))}]"
    return type(value).__name__


@pytest.mark.parametrize("name", sorted(name for name, call in PUBLIC.items() if ">>>" in (inspect.getdoc(call) or "")))
def test_what_a_docstring_shows_is_what_the_stub_says(stubs, monkeypatch, capsys, name):
    call, seen, space = PUBLIC[name], set(), {"tn": tn}

    def noted(*args, **keywords):
        found = call(*args, **keywords)
        seen.add(form(found))
        return found
    monkeypatch.setattr(tn, name, noted)
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(call)):
        exec(compile(example.source, name, "single"), space)
    stated = stubs.result(call)
    for one in seen - {stated}:
        assert stated == "Any" or (stated == "tuple[Tensor, ...]" and set(re.findall(r"\w+", one[5:])) == {"Tensor"})


def test_every_operator_says_what_it_returns(stubs):
    assert not [name for name, call in PUBLIC.items() if isinstance(call, Op) and stubs.result(call) == "Any"]


def test_dir_lists_what_is_meant_for_users():
    names = [name for name in dir(tn) if not name.startswith("_")]
    assert {"jit", "zeros", "nn", "float32", "save"} <= set(names)
    assert not {"array_conversion", "autodiff", "dims", "passes", "loops"} & set(names)
