"""Programs with state of a few seeds are right; one that is wrong is told."""

from pathlib import Path
from typing import Any

import pytest

import tenon as tn
from fuzz.stateful.grammar import PHRASES, SENTENCES, Grammar
from fuzz.stateful.judge import alike, judge, judged


@pytest.mark.parametrize("seed", range(24))
def test_a_program_is_the_same_jitted(seed: int, tmp_path: Path) -> None:
    assert judge(seed, tmp_path) is None


def test_a_seed_says_the_whole_program() -> None:
    assert [Grammar(seed).program() for seed in range(5)] == [Grammar(seed).program() for seed in range(5)]


def test_all_phrases_are_used_and_make_programs_of_python() -> None:
    sources = [Grammar(seed).program() for seed in range(300)]
    for source in sources:
        compile(source, "<program>", "exec")
    assert len(SENTENCES) > 50 and sum(map(len, PHRASES.values())) > 100
    for part in ("match", "with faster(o)", "risky(", "o.tally", "keep=", "o.opt.step", "def inner"):
        assert any(part in source.partition("def program(")[2] for source in sources), part


def test_what_jitting_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program.py"
    source = Grammar(0).program().partition("\ndef program(")[0]
    path.write_text(source + "\ndef program(o, x, n, s, flag):\n    o.count += n\n    print(n)\n    return x * n\n", encoding="utf-8")
    assert judged(path) is None

    def forgets(f: Any) -> Any:
        def run(thing: Any, *given: Any) -> Any:
            result = f(thing, *given)
            thing.count = 2
            return result
        return run
    monkeypatch.setattr(tn, "jit", forgets)
    monkeypatch.setattr(tn, "explain", lambda f: "")
    wrong = judged(path)
    assert wrong is not None and "count is 4 eagerly, and 2 jitted" in wrong


def test_numbers_agree_but_for_roundings_in_texts_too() -> None:
    assert alike("loss 0.12341 after 3", "loss 0.12342 after 3") and not alike("loss 0.2 after 3", "loss 0.3 after 3")
    assert not alike("loss 1", "los 1") and not alike(1, 1.0) and not alike(True, 1)
    assert alike([float("nan"), ("a", 1.0)], [float("nan"), ("a", 1.0 + 1e-9)])
