"""The simulator beside what was measured: the ten rows of `megatron_table`."""

import pytest

from megatron_table import NAMES, TABLE, Row, divided
from tenon.planning.cluster import load_cluster
from tenon.planning.training_step import estimate_step


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_a_row_of_the_table_is_what_it_says(row: Row) -> None:
    model, sizes = divided(row)
    assert model.parameters / 1e9 == pytest.approx(row.billions, abs=0.06)
    assert sizes.devices == row.gpus and row.gpus * row.measured / 1e3 == pytest.approx(row.petaflops, rel=0.005)


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_simulated_throughput_is_within_15_percent(row: Row) -> None:
    model, sizes = divided(row)
    step = estimate_step(model, sizes, load_cluster("a100"))
    simulated = model.operations(recomputed=True) / step.seconds / row.gpus / 1e12
    print(f"{row.billions}B on {row.gpus}: simulated {simulated:.0f}, measured {row.measured} TFLOP/s a GPU")
    assert simulated == pytest.approx(row.measured, rel=0.15)
    assert step.fits        # since it ran
