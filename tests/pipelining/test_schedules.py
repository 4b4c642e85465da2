"""Pipeline schedules: each can run, keeps as much as its paper says, and waits as long as its formula says."""

import pytest

from tenon.errors import ArgumentError
from tenon.pipelining.schedules import (
    SCHEDULES,
    Action,
    PipelineSchedule,
    activations_kept,
    check_schedule,
    pipeline_schedule,
)
from tenon.pipelining.simulate_schedule import StageCosts, gantt, simulate, theoretical_bubble

SIZES = [(p, m) for p in (1, 2, 3, 4, 7) for m in (1, 2, 3, 4, 5, 8, 13)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_can_run_whatever_the_sizes(name: str) -> None:
    for p, m in SIZES:
        for chunks in (1, 2, 3) if name in ("interleaved", "gpipe") else (1,):
            schedule = pipeline_schedule(name, p, m, chunks)        # checked as it is made
            assert simulate(schedule, StageCosts(1, 1, 1)).seconds >= 3 * m * chunks


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero_bubble"])
def test_the_bubble_is_that_of_the_formula(name: str) -> None:
    for p, m in SIZES:
        if m < p:
            continue
        for costs in ((1, 1, 1), (2, 3, 2), (1, 2, 1)):
            found = simulate(pipeline_schedule(name, p, m), StageCosts(*costs)).bubble
            assert found == pytest.approx(theoretical_bubble(name, p, m, 1, *costs), abs=1e-12), (p, m, costs)


@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_the_interleaved_bubble_is_that_of_the_formula(chunks: int) -> None:
    for p, m in ((2, 2), (2, 8), (3, 6), (4, 4), (4, 16), (8, 8)):
        found = simulate(pipeline_schedule("interleaved", p, m, chunks), StageCosts(1, 1, 1)).bubble
        assert found == pytest.approx(theoretical_bubble("interleaved", p, m, chunks), abs=1e-12), (p, m)


def test_what_is_kept_is_what_the_papers_say() -> None:
    assert activations_kept(pipeline_schedule("gpipe", 4, 8)) == (8, 8, 8, 8)
    assert activations_kept(pipeline_schedule("1f1b", 4, 8)) == (4, 3, 2, 1)
    assert max(activations_kept(pipeline_schedule("zero_bubble", 4, 8))) == 4
    assert activations_kept(pipeline_schedule("interleaved", 4, 8, 2)) == (11, 9, 7, 5)


def test_transfers_and_uneven_stages_take_their_time() -> None:
    schedule = pipeline_schedule("gpipe", 2, 1)
    assert simulate(schedule, StageCosts([1, 2], [1, 2], 0, transfer=0.5)).seconds == 7


def test_a_schedule_that_waits_for_ever_is_refused() -> None:
    rows = ((Action("F", 0, 0), Action("F", 0, 1), Action("B", 0, 0), Action("B", 0, 1)),
            (Action("F", 1, 1), Action("B", 1, 1), Action("F", 1, 0), Action("B", 1, 0)))
    check_schedule(PipelineSchedule("mine", 2, 2, 1, rows))
    bad = ((Action("F", 0, 0), Action("B", 0, 0), Action("F", 0, 1), Action("B", 0, 1)), rows[1])
    with pytest.raises(ArgumentError, match=r"B0\.0 waits for ever for B1\.0|F1\.1 waits for ever for F0\.1"):
        check_schedule(PipelineSchedule("mine", 2, 2, 1, bad))


@pytest.mark.parametrize(("rows", "said"), [
    (((Action("F", 0, 0),),), r"B0\.0 is not there exactly once"),
    (((Action("F", 0, 0), Action("B", 0, 0), Action("B", 0, 0)),), r"B0\.0 is not there exactly once"),
    (((Action("F", 0, 0), Action("B", 0, 0), Action("F", 0, 7)),), r"F0\.7 is not one of its actions")])
def test_a_schedule_that_is_not_whole_is_refused(rows: tuple[tuple[Action, ...], ...], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        check_schedule(PipelineSchedule("mine", 1, 1, 1, rows))


def test_an_action_on_the_wrong_device_is_refused() -> None:
    first, second = pipeline_schedule("1f1b", 2, 2).actions
    with pytest.raises(ArgumentError, match=r"F1\.0 is on device 0"):
        check_schedule(PipelineSchedule("mine", 2, 2, 1, (second, first)))


@pytest.mark.parametrize("arguments", [("2f2b", 2, 2), ("1f1b", 0, 2), ("1f1b", 2, True), ("gpipe", 2, 2, -1),
                                       ("1f1b", 2, 2, 2), ("zero_bubble", 2, 2, 2)])
def test_what_is_no_schedule_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ArgumentError):
        pipeline_schedule(*arguments)      # type: ignore[arg-type]


def test_the_picture_shows_the_bubble() -> None:
    assert gantt(simulate(pipeline_schedule("1f1b", 2, 2), StageCosts(1, 1, 1)), width=36) == """\
device 0 |F0--F1--........B0------....B1------|
device 1 |....F0--B0------F1--B1------........|
9 s, bubble 33.3%"""
