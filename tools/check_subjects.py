"""Commits -> those whose subject is not `area: what changes` in 72 characters; the exit code says whether there are.

    python tools/check_subjects.py              # the commits of HEAD since the rule holds
    python tools/check_subjects.py main..       # those of a branch

Figures and reasons stand in the body.  Where there is no repository, or a shallow one, only what is there is looked at.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAST_WITHOUT_RULE = "83264c8f5e3e6e70207fccc9b0554ceb25ae6da2"
MAX_CHARACTERS = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_ ,./-]*: (?!\s).*[^.\s]")      # the area is lower case, and there is no full stop


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("range", nargs="?", help="of commits, as git log takes it")
    options.add_argument("--repository", type=Path, default=ROOT, help="where to look (this one)")
    chosen = options.parse_args()
    wrong = [f"{commit[:10]} {subject}\n    {why}" for commit, subject in commits(chosen.repository, chosen.range)
             if (why := problem(subject))]
    print("\n".join(wrong), end="\n" * bool(wrong))
    return bool(wrong)


def problem(subject: str) -> str:
    """What is wrong with a subject; nothing where it is right."""
    if len(subject) > MAX_CHARACTERS:
        return f"has {len(subject)} characters: at most {MAX_CHARACTERS}, and figures go to the body"
    if not SUBJECT.fullmatch(subject):
        return "is not `area: what changes`, with the area in lower case and no full stop"
    return ""


def commits(repository: Path, asked: str | None) -> list[tuple[str, str]]:
    """(hash, subject) of the commits of a range, merges left out."""
    if asked is None:
        known = git(repository, "cat-file", "-e", f"{LAST_WITHOUT_RULE}^{{commit}}") is not None
        asked = f"{LAST_WITHOUT_RULE}..HEAD" if known else None
    if asked is None:
        return []
    listed = git(repository, "log", "--no-merges", "--format=%H %s", asked, "--")
    if listed is None:
        raise SystemExit(f"git knows no commits {asked} in {repository}")
    return [(commit, subject) for line in listed.splitlines() for commit, _, subject in (line.partition(" "),)]


def git(repository: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails, or is not there."""
    try:
        made = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return made.stdout if made.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
