"""A stranger finds the room from `ls`: no name twice, verbs for passes, rooms of a size, and the words of the literature."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "tenon").rglob("*.py"))
MAX_DUPLICATES = 10         # an operator and its layer may share a name: tenon/ops/pooling.py and tenon/nn/pooling.py
MAX_SHARE = 0.18            # of all lines, in one room of the house
WORDS_OF_THE_FIELD = 50
VERBS = """absorb batch decompose drop expand find fold fuse hoist lower merge partition place prune recompute
rematerialize schedule simplify specialize transpose unroll use"""


def duplicates(names: Iterator[str]) -> dict[str, int]:
    return {name: count for name, count in Counter(names).items() if count > 1}


def test_hardly_a_file_name_is_there_twice() -> None:
    found = duplicates(path.stem for path in FILES if path.stem not in ("__init__", "base"))
    assert len(found) <= MAX_DUPLICATES, found


def test_hardly_a_class_name_is_there_twice() -> None:
    found = duplicates(node.name for path in FILES for node in ast.parse(path.read_text(encoding="utf-8")).body
                       if isinstance(node, ast.ClassDef))
    assert len(found) <= MAX_DUPLICATES, found


def test_a_pass_is_called_by_a_verb() -> None:
    names = [path.stem for path in (ROOT / "tenon" / "passes").glob("*.py") if path.stem != "__init__"]
    assert names and not [name for name in names if name.split("_")[0] not in VERBS.split()]


def test_no_room_is_too_large() -> None:
    lines: Counter[str] = Counter()
    for path in FILES:
        room, *inner = path.relative_to(ROOT / "tenon").parts
        lines["/".join([room, inner[0]] if room == "backends" else [room])] += len(path.read_text("utf-8").splitlines())
    room, most = lines.most_common(1)[0]
    assert most <= MAX_SHARE * lines.total(), f"{room} has {most} of {lines.total()} lines"


def glossary() -> tuple[list[list[str]], set[str]]:
    """(the rows of the words of the field, the sources that are listed)"""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words, sources = page.partition("## Words of the field")[2].split("## Sources")
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in words.splitlines() if line.startswith("| ")]
    return table[1:], {line.split("|")[1].strip() for line in sources.splitlines() if line.startswith("| ")}


def plain(text: str) -> str:
    return re.sub(r"[-_ ]", "", text.lower())


def test_the_words_of_the_literature_are_in_the_code_and_have_a_source() -> None:
    rows, sources = glossary()
    assert len({word for word, *_ in rows}) >= WORDS_OF_THE_FIELD
    assert {source for *_, source in rows} == sources - {""}
    for word, _, where, _ in rows:
        path = ROOT / "tenon" / where.strip("`")
        stem = re.sub(r"(ling|isation|ping|king|ting|ing|ion|s)$", "", plain(word.split(" and ")[0]))
        assert stem in plain(where + path.read_text(encoding="utf-8")), f"{path} does not say {word}"
