"""tools/check_subjects.py: commits with a wrong subject are named, and the others are not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "check_subjects.py"
WRONG = {
    "Fuse: what changes": "not `area: what changes`",
    "what changes": "not `area: what changes`",
    "fuse: what changes.": "not `area: what changes`",
    "fuse:  what changes": "not `area: what changes`",
    "fuse:what changes": "not `area: what changes`",
    "fuse: " + "x" * 67: "73 characters",
}
RIGHT = ["fuse: what changes", "docs, tests: PyTorch's 3 names", "cpython/eager: a", "fuse: " + "x" * 66]


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *named, "-C", str(folder), *arguments], capture_output=True, text=True,
                          check=True).stdout.strip()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), "--repository", str(folder), *arguments], capture_output=True,
                          text=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not there")
def test_commits_with_a_wrong_subject_are_named(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Before the rule")
    first = git(tmp_path, "rev-parse", "HEAD")
    for subject in RIGHT:
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject, "-m", "A body. Of 0.9 of the time.")
    right = run(tmp_path, f"{first}..")
    assert (right.returncode, right.stdout) == (0, "")
    last = git(tmp_path, "rev-parse", "HEAD")
    for subject in WRONG:
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    wrong = run(tmp_path, f"{last}..")
    said = wrong.stdout.splitlines()
    assert wrong.returncode == 1 and len(said) == 2 * len(WRONG)
    for (subject, why), line, reason in zip(reversed(WRONG.items()), said[::2], said[1::2], strict=True):
        assert line.endswith(subject) and why in reason


def test_where_there_is_no_such_repository_nothing_is_looked_at(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert (found.returncode, found.stdout) == (0, "")


def test_a_range_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    found = run(tmp_path, "nowhere..")
    assert found.returncode == 1 and "nowhere.." in found.stderr
