"""The generated pages say of every public name what its definition says; Sphinx builds all pages without a warning."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tenon as tn
from tenon.graph.op import Op

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module", autouse=True)
def docs_on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(DOCS))
    yield
    sys.path.remove(str(DOCS))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_every_operator_and_function_is_on_one_page() -> None:
    families = module("generate_operators").families()
    told = [one for family in families for one in [*family.public.values(), *family.internal]]
    assert len(told) == len({id(one) for one in told})
    assert {id(one) for one in told} >= {id(one) for one in tn.ops.PUBLIC.values()}


def test_an_operator_is_told_with_all_that_its_definition_says() -> None:
    text = module("generate_operators").entry("add", tn.add)
    for part in ("tn.add(x, y)", "The sum.", "`x + y`", "Gradient:* yes", "add(f32[2, 3], f32[2, 3]) -> f32[2, 3]"):
        assert part in text


def test_a_second_name_leads_to_the_first() -> None:
    assert "`tn.absolute`" in module("generate_operators").entry("abs", tn.abs)


def test_every_public_name_has_a_docstring_and_a_place() -> None:
    api = module("generate_api")
    told = {name for page in api.PAGES.values() for name in page.names or api.documented(page.module)}
    told |= {*tn.ops.PUBLIC, *api.dtypes(), *api.CONSTANTS}
    public = {name for name in vars(tn) if not name.startswith("_") and not isinstance(getattr(tn, name), ModuleType)}
    assert public - told == set()
    assert all(one.__doc__ or isinstance(one, Op) for one in tn.ops.PUBLIC.values())


def test_marks_of_markdown_in_a_docstring_are_taken_literally() -> None:
    markdown = module("render").markdown
    assert markdown("x * y_z, `a*b`\n\n>>> 1 * 1\n1") == "x \\* y\\_z, `a*b`\n\n```pycon\n>>> 1 * 1\n1\n```"


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="the docs extra is not installed")
def test_sphinx_builds_every_page_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "api" / "operators" / "arithmetic.html").exists()
