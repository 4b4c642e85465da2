"""docs/error_messages.md says what Tenon says today, and by its own measure no message is worse than another library's.

What PyTorch and JAX say is in messages_of_others.json, as tools/error_messages.py was told by them.
"""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("error_messages", ROOT / "tools" / "error_messages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def told(tool):
    return tool.said("tenon")


@pytest.fixture(scope="module")
def others(tool):
    return json.loads(tool.OTHERS.read_text(encoding="utf-8"))


def test_the_page_is_what_the_tool_writes(tool, told, others):
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(told, others), "run python tools/error_messages.py"


def test_every_message_tells_all_five_things(tool, told):
    for mistake, answer in zip(tool.mistakes(), told, strict=True):
        assert tool.tells(mistake, mistake.tenon, answer) == set(tool.MARKS), answer


@pytest.mark.parametrize(("library", "least"), [("torch", 90), ("jax", 85)])
def test_better_than_most_and_worse_than_none(tool, told, others, library, least):
    verdicts = []
    for mistake, ours, theirs in zip(tool.mistakes(), told, others[library]["said"], strict=True):
        if theirs is not None:
            known = tool.tells(mistake, getattr(mistake, library), theirs) if theirs["error"] else None
            verdicts.append(tool.verdict(tool.tells(mistake, mistake.tenon, ours), known))
    assert verdicts.count("better") >= least and "worse" not in verdicts


@pytest.mark.parametrize(("fact", "message", "is_there"), [
    ("[2, 3]", "(2x3 and 4x5)", True), ("[2, 3]", "torch.Size([2, 3])", True), ("[2]", "shapes=[(2, 3), (2,)]", True),
    ("[2]", "[2, 3]", False), ("5", "k=5 of 3", True), ("5", "size 15", False), ("float", "'Float'", True)])
def test_facts_are_found_in_any_notation(tool, fact, message, is_there):
    assert tool.is_in(fact, message) is is_there


def test_what_lacks_something_is_worse(tool):
    assert tool.verdict({"op", "line"}, {"op", "mend"}) == "worse"
    assert tool.verdict({"op"}, None) == "better"
    assert tool.verdict({"op"}, {"op"}) == "same"
