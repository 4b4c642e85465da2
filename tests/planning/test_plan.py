"""Plans: what is found, as a table and as a file; what no plan is refused."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from megatron_table import NAMES, TABLE, divided
from tenon.cli import main
from tenon.errors import ArgumentError
from tenon.planning.cluster import load_cluster
from tenon.planning.make_plan import plan
from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.plan import Plan
from tenon.planning.search_plans import divisions, search
from tenon.planning.training_step import estimate_step
from tenon.planning.transformer_model import TransformerModel

SMALL = TransformerModel(layers=4, width=1024, heads=16, batch=64)


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan(SMALL, cluster="a100", devices=4)


@pytest.mark.parametrize("row", TABLE[5:6], ids=NAMES[5:6])      # the others: tools/plan_megatron.py
def test_a_plan_is_at_least_as_fast_as_the_published_one(row: Any) -> None:
    model, sizes = divided(row)
    theirs, ours = estimate_step(model, sizes, load_cluster("a100")), search(model, load_cluster("a100"), row.gpus)[0]
    print(f"{row.billions}B: theirs {theirs.seconds:.2f} s, found {ours.seconds:.2f} s, {ours.sizes}")
    assert ours.seconds <= theirs.seconds and ours.fits and ours.sizes.devices == row.gpus


def test_16384_devices_are_planned_in_under_a_minute() -> None:
    model = TransformerModel(layers=128, width=25600, heads=160, batch=16384)
    started = time.process_time()
    found = plan(model, cluster="a100", devices=16384)
    taken = time.process_time() - started
    print(f"16384 devices in {taken:.1f} s of processor time")
    assert taken < 60 and found.sizes.devices == 16384 and found.best.fits


def test_the_first_is_the_fastest_of_what_fits(small: Plan) -> None:
    seconds = [x.seconds for x in small.candidates]
    assert seconds == sorted(seconds) and all(x.fits and x.sizes.devices == 4 for x in small.candidates)
    everything = [estimate_step(SMALL.checked(), sizes, load_cluster("a100")) for sizes in
                  list(divisions(SMALL.checked(), load_cluster("a100"), 4))[::5]]
    assert small.best.seconds <= min(x.seconds for x in everything if x.fits) * (1 + 1e-9)


def test_the_table_says_what_a_candidate_costs(small: Plan) -> None:
    title, columns, _, first, *_ = str(small).splitlines()
    assert "4 devices of nodes of 8 A100-80GB" in title
    assert all(x in columns for x in ("stage x data x model", "step", "memory", "by NVLink", "bubble", "MFU"))
    sizes = small.sizes
    assert f"{sizes.stage} x {sizes.data} x {sizes.model}" in first and "GB" in first and "%" in first


def test_a_plan_is_saved_and_loaded(small: Plan, tmp_path: Path) -> None:
    small.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == small


@pytest.mark.parametrize(("key", "value", "complaint"), [
    ("format", "tenon plan 2", "format is 'tenon plan 2'"), ("levels", [], "levels is"),
    ("candidates", [], "candidates is"), ("candidates", 3, "candidates is 3"), ("what", 1, "what is 1"),
    ("seconds", -1, "seconds is -1"), ("seconds", "1", "seconds is '1'"), ("sent", [1], "sent is"),
    ("mfu", float("nan"), "mfu is nan"), ("data", 0, "data is 0"), ("schedule", "mine", "schedule is 'mine'"),
    ("schedule", ["1f1b"], "schedule is"), ("shard", 4, "shard is 4"), ("shard", True, "shard is True"),
    ("sequence", 1, "sequence is 1"), ("more", 1, "'more' is no key here")])
def test_a_file_that_says_no_plan_is_refused(small: Plan, tmp_path: Path, key: str, value: Any, complaint: str) -> None:
    said = json.loads(small.to_json())
    first = said["candidates"][0]
    (said if key in said or key == "more" else first if key in first else first["sizes"])[key] = value
    (tmp_path / "plan.json").write_text(json.dumps(said))
    with pytest.raises(ArgumentError, match=complaint.replace("[", r"\[")):
        Plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 100_000, '{"format": "tenon plan 1"}', "\xff\xfe"])
def test_what_is_no_plan_at_all_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ArgumentError):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(ArgumentError):
        Plan.load(tmp_path / "no such file")


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(ArgumentError, match="cannot be divided over 7 devices"):
        plan(SMALL, cluster="a100", devices=7)
    with pytest.raises(ArgumentError, match="20000 devices, and the cluster"):
        plan(SMALL, cluster="a100", devices=20000)
    with pytest.raises(ArgumentError, match="whole number from 1 on"):
        plan(SMALL, cluster="a100", devices=0)
    with pytest.raises(ArgumentError, match=r"no division over 1 devices fits: .* GB a device"):
        plan(TransformerModel(layers=128, width=25600, heads=160, batch=1), cluster="a100", devices=1)
    with pytest.raises(ArgumentError, match="heads do not divide"):
        plan(TransformerModel(layers=1, width=100, heads=3), cluster="a100", devices=1)
    with pytest.raises(ArgumentError, match="not int"):
        plan(3, cluster="a100", devices=1)


@pytest.mark.parametrize(("sizes", "complaint"), [
    (ParallelSizes(data=3), "64 texts do not divide into 3 parts"), (ParallelSizes(model=3), "16 heads do not divide"),
    (ParallelSizes(stage=3), "4 layers do not divide"), (ParallelSizes(micro_batch=0), "micro_batch is a whole"),
    (ParallelSizes(recompute="some"), "recompute is one of"), (ParallelSizes(schedule="mine"), "schedule is one of"),
    (ParallelSizes(stage=2, chunks=2), "need the interleaved schedule"), (ParallelSizes(shard=7), "shard is one of")])
def test_sizes_that_no_step_has_are_refused(sizes: ParallelSizes, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        estimate_step(SMALL.checked(), sizes, load_cluster("a100"))


def test_more_memory_for_less_time() -> None:
    """What is known of the choices: recomputing takes time, and less memory; dividing state takes less."""
    cluster, model = load_cluster("a100"), SMALL.checked()
    none, layer = (estimate_step(model, ParallelSizes(data=8, micro_batch=4, recompute=x), cluster)
                   for x in ("none", "layer"))
    assert none.seconds < layer.seconds and none.memory > layer.memory
    memories = [estimate_step(model, ParallelSizes(data=8, shard=shard), cluster).memory for shard in range(4)]
    assert memories == sorted(memories, reverse=True) and memories[0] > 3 * memories[3] - layer.memory
    apart, beside = (estimate_step(model, ParallelSizes(data=8, model=2, overlap=x), cluster) for x in (False, True))
    assert beside.seconds < apart.seconds


def test_the_command_prints_a_table_and_saves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--layers", "2", "--width", "256", "--heads", "4", "--batch", "16", "--tokens", "128"]
    assert main(["plan", *sizes, "--devices", "2", "--save", str(tmp_path / "plan.json")]) == 0
    assert "2 devices of nodes of 8 A100-80GB" in capsys.readouterr().out
    assert Plan.load(tmp_path / "plan.json").sizes.devices == 2
    assert main(["plan", *sizes, "--cluster", "nowhere"]) == 1
    assert "there is no cluster 'nowhere'" in capsys.readouterr().err
