"""A graph that is cut for several processes: each runs its part, and all have the results."""

from pathlib import Path

import numpy as np
import pytest

from tenon.graph.interpret import interpret

pytest.importorskip("mpi4py")
from distributed.test_mpi_transport import MPIEXEC, mpiexec
from placement.cut_ranks import ARRAYS, whole


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside Python")
def test_processes_compute_what_one_does(tmp_path: Path) -> None:
    ran = mpiexec(2, str(Path(__file__).with_name("cut_ranks.py")), str(tmp_path), "2")
    assert ran.returncode == 0, ran.stderr
    (expected,) = interpret(whole(), ARRAYS)
    for rank in (0, 1):
        for seed in range(3):
            for found in np.load(tmp_path / f"{rank}_{seed}.npy"):
                np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside Python")
def test_a_step_is_placed_on_processes_by_the_user(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("processes_place.py"))
    for count in (1, 2):
        ran = mpiexec(count, script, str(tmp_path))
        assert ran.returncode == 0, ran.stderr
    alone, *others = (np.load(tmp_path / name) for name in ("0_of_1.npy", "0_of_2.npy", "1_of_2.npy"))
    assert np.array_equal(*others)
    np.testing.assert_allclose(others[0], alone, rtol=1e-5)
