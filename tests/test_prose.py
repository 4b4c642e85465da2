"""Pages read easily: short sentences, files that are where they say, and short pages for the design."""

import re
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parent.parent
ALL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*sorted((ROOT / "docs" / "design").glob("*.md")), ROOT / "docs" / "experiments.md"]
MAX_LINES = 150
MEDIAN_WORDS, MAX_WORDS = 18, 40


def sentences(page: Path) -> list[int]:
    """How many words the sentences of a page have, without code, tables and headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    prose = "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#")))
    paragraphs = (" ".join(part.split()) for part in prose.split("\n\n"))
    return [len(x.split()) for part in paragraphs for x in re.split(r"(?<=[.:;?!])\s+", part) if x]


def test_there_are_pages() -> None:
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_so_are_its_sentences(page: Path) -> None:
    words = sentences(page)
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
    assert median(words) <= MEDIAN_WORDS and max(words) <= MAX_WORDS


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_sentences_of_all_pages_are_short(page: Path) -> None:
    words = sentences(page)
    assert median(words) <= MEDIAN_WORDS and max(words) <= MAX_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_are_where_a_page_says(page: Path) -> None:
    named = re.findall(r"`([\w/]+(?:\.py|/))`", page.read_text(encoding="utf-8"))
    rooms = [ROOT, ROOT / "tenon", *(x for x in (ROOT / "tenon").rglob("*") if x.is_dir())]
    gone = sorted({name for name in named if not any((room / name).exists() for room in rooms)})
    assert not gone, gone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sources_that_a_page_names_are_in_the_glossary(page: Path) -> None:
    listed = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Sources")[2]
    named = set(re.findall(r"\b[A-Z][A-Za-z]+ (?:19|20)\d\d\b|\bOpenMP \d\.\d", page.read_text(encoding="utf-8")))
    assert sorted(x for x in named if f"| {x} |" not in listed) == []


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_paths_from_the_root_exist(page: Path) -> None:
    named = re.findall(r"`((?:tenon|tests|docs|tools|examples|benchmarks)/[\w/.-]+)`", page.read_text(encoding="utf-8"))
    assert sorted({name for name in named if not (ROOT / name).exists()}) == []


def test_the_map_in_the_readme_names_what_is_there() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The map")[2].partition("\n## ")[0]
    named = set()
    for cell in re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE):
        first, *others = cell.split()
        folder = first[: first.rstrip("/").rfind("/") + 1]
        named |= {(ROOT / path).resolve() for path in (first, *(folder + other for other in others))}
    assert [path for path in named if not path.exists()] == []
    there = {p for p in (ROOT / "tenon").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert there - named == {ROOT / "tenon" / "__init__.py"}
