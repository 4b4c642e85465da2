"""The fuzzer finds what is wrong, shrinks it, calls nothing else wrong; and programs of a few seeds are right.

`TENON_FUZZ=60 pytest tests/fuzz` judges new programs for that many seconds; `TENON_FUZZ_SEED` says which.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

import tenon as tn
from fuzz import campaign
from fuzz.campaign import Campaign
from fuzz.generate import Maker, called, generate, operators_with_examples
from fuzz.judge import Failure, judge
from fuzz.program import HEADER, OF_OPS, Input, Program, Step, own_name
from fuzz.shrink import judged_apart, shrunk
from tenon.errors import GraphError
from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph
from tenon.ops.arithmetic import add
from tenon.ops.trigonometric import sinh

FOUND = sorted((Path(__file__).parent / "found").glob("*.py"))


@pytest.fixture
def failing_pass():
    """A pass that refuses what it is given."""
    def refuse(graph: Graph) -> Graph:
        raise GraphError("not today")
    tn.graph_pass(refuse, before="expand")
    yield
    tn.remove_pass("refuse")


@pytest.fixture
def wrong_pass():
    """A pass under which sinh is off by a ten-thousandth."""
    def spoil_sinh(graph: Graph) -> Graph:
        return rebuild(graph, lambda node, inputs: sinh(*inputs) * 1.0001 if node.op is sinh else copy(node, inputs))
    tn.graph_pass(spoil_sinh, before="expand")
    yield
    tn.remove_pass("spoil_sinh")


LONG = Program((Input("x0", "f32", (5, 7), "normal", 3, "turned"), Input("x1", "f32", (5, 7))), (
    Step(("v0",), "tn.softmax({0}, axis=1)", ("x0",)),
    Step(("v1",), "tn.sinh({0} + {1})", ("v0", "x1")),
    Step(("v2",), "tn.cumsum({0}, 0)", ("v1",)),
    Step(("v3", "v4"), "tn.aminmax({0}, 1)", ("v2",))), ("v0", "v3", "v4"), ("v0", "v3"), "value_and_grad", 0, (((3, 4), (3, 4)),))


def program(body: str, *arrays: str) -> str:
    names = ", ".join(f"x{k}" for k in range(len(arrays)))
    return f"{HEADER}\n\ndef program({names}):\n    {body}\n\n\nCALLS = [[{', '.join(arrays)}]]\n"


def test_a_seed_says_the_whole_program() -> None:
    assert [generate(seed).source for seed in range(5)] == [generate(seed).source for seed in range(5)]


def test_programs_that_follow_each_other_take_turns_in_all_operators() -> None:
    wanted = operators_with_examples()
    shown = [op.name for seed, op in enumerate(wanted) if f"{OF_OPS.sub(own_name, called(op))}(" in generate(seed).source]
    assert len(shown) > 0.9 * len(wanted)       # the others' examples are refused at times, in this seed


def test_workers_judge_each_program_once_and_batches_have_vectors_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever judges a batch, and however often its worker crashes."""
    judged: list[tuple[int, str]] = []
    run = Campaign(3, 60.0, keep=None, workers=3)

    def crashes_after_two(first: int, count: int, vectors: str) -> int:
        judged.extend((seed, vectors) for seed in range(first, first + min(count, 2)))
        run.end = 0.0 if len(judged) >= 60 else run.end
        return min(count, 2)
    monkeypatch.setattr(campaign, "BATCH", 5)
    monkeypatch.setattr(run, "batch", crashes_after_two)
    run.run()
    seeds = sorted(seed for seed, _ in judged)
    assert len(seeds) == len(set(seeds)) and set(range(3_000_000, 3_000_040)) <= set(seeds)
    assert all(vectors == run.lengths[(seed - 3_000_000) // 5 % len(run.lengths)] for seed, vectors in judged)


def test_a_program_without_floating_inputs_has_no_gradient() -> None:
    """Though one had, of which nothing but truth values was made."""
    left = []
    for seed in range(60):
        maker = Maker(Random(seed), add)
        maker.input("i64", (3,)), maker.input("f32", (3,))
        maker.run(Step(("v0",), "{0} > 0", ("x1",)))
        maker.run(Step(("v1",), "{0} / 2", ("x0",)))
        maker.shown = "v1"
        left.append(maker.finished())
    whole = {program.transform for program in left if [x.dtype for x in program.inputs] == ["i64"]}
    assert "plain" in whole and whole <= {"plain", "vmap"}


def test_a_pass_that_is_a_little_wrong_is_found(wrong_pass: None) -> None:
    failure = judge(LONG.source).failure
    assert failure is not None and failure.kind == "compiled wrong"


def test_a_program_shrinks_to_the_one_step_that_matters() -> None:
    wrong = Failure("compiled wrong", "")
    small, _ = shrunk(LONG, wrong, check=lambda source: wrong if "tn.sinh" in source else None)
    assert [step.template.partition("(")[0] for step in small.steps] == ["tn.sinh"]
    assert small.transform == "plain" and not small.calls and len(small.outputs) == 1
    assert all(x.layout == "plain" and max(x.shape, default=1) == 1 for x in small.inputs)


def test_a_graph_that_fails_is_wrong_though_the_function_runs_eagerly_then(failing_pass: None) -> None:
    failure = judge(LONG.source).failure
    assert failure is not None and failure.kind.startswith("compiled raises")


def test_without_the_pass_the_same_program_is_right() -> None:
    verdict = judge(LONG.source)
    assert verdict.valid and verdict.failure is None


@pytest.mark.parametrize("body", [
    "return (x0 * 1e6 + x1) - x0 * 1e6",                # what is left is rounding
    "return tn.argmax(x0 / 3 - x0 * (1 / 3), axis=1)",  # decided by roundings
    "return tn.floor(x0 * 3.1 / 3.1), x0 * 1.7 / 1.7 == x0",
    "return tn.exp(x0 * 60) / tn.exp(x0 * 60)",         # may overflow
    "return tn.instance_norm((x0 * 1e-6 + 1)[None])",
    "return tn.where(x0 * 1.7 / 1.7 - x0, x0, 1)",
    "return tn.linalg.det(x0[:3, :3] * 0 - 1.96), tn.linalg.slogdet(x0[:2, :2] * 0 - 1.96)",    # is it 0?
], ids=str)
def test_what_roundings_decide_is_not_called_wrong(body: str) -> None:
    array = "np.random.default_rng(0).standard_normal((9, 31)).astype(np.float32)"
    verdict = judge(program(body, array, array))
    assert verdict.valid and verdict.failure is None


def test_ties_that_no_rounding_decides_are_compared(wrong_pass: None) -> None:
    source = program("return tn.argmax(x0 + x0, axis=0), (tn.sinh(x0) > 0.5).sum()", "np.ones((4, 3), np.float32)")
    assert judge(source).failure is None
    source = program("return tn.floor(tn.sinh(x0 * 0))", "np.ones((4, 3), np.float32)")
    assert judge(source).failure is None


def test_a_crash_and_a_hang_are_answers() -> None:
    assert judged_apart("import os\nos.kill(os.getpid(), 9)\n") == Failure("crashes", "by signal SIGKILL")
    assert judged_apart("while True: pass\n", seconds=0.5) == Failure("hangs", "no answer in 0.5 seconds")


def test_pytorch_is_asked_where_it_has_all_that_a_program_calls() -> None:
    pytest.importorskip("torch")
    array = "np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)"
    assert judge(program("return tn.softmax(x0, axis=0), x0.max(1, keepdims=True), tn.grad(lambda x: tn.square(tn.tanh(x)).sum())(x0)",
                         array)).by_pytorch
    assert not judge(program('return OPS["stored"](x0)', array)).by_pytorch


@pytest.mark.parametrize("seed", range(20))
def test_programs_of_fixed_seeds_are_right(seed: int) -> None:
    assert judge(generate(seed).source).failure is None


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.stem)
def test_what_was_found_once_is_right(file: Path) -> None:
    verdict = judge(file.read_text(encoding="utf-8"), str(file))
    assert verdict.valid and verdict.failure is None


def test_what_was_found_with_short_vectors_is_right_with_them() -> None:
    files = [str(file) for file in FOUND if "VECTORS = 128" in file.read_text(encoding="utf-8")]
    run = subprocess.run([sys.executable, "-m", "tenon", "fuzz", *files], capture_output=True, text=True, cwd=campaign.ROOT,
                         env=os.environ | {"TENON_VECTORS": "128", "PYTHONPATH": str(campaign.ROOT)}, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.skipif("TENON_FUZZ" not in os.environ, reason="TENON_FUZZ says for how many seconds")
def test_programs_of_a_new_seed_are_right(tmp_path: Path) -> None:
    seed = int(os.environ.get("TENON_FUZZ_SEED", time.time()))
    report = Campaign(seed, float(os.environ["TENON_FUZZ"]), keep=tmp_path).run()
    assert not report.found, f"seed {seed}\n" + "\n".join(found.text for found in report.found)
    assert report.programs
