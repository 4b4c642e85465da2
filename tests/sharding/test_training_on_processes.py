"""Training steps on meshes of processes: the bits of as many logical devices in one process."""

from pathlib import Path

import numpy as np
import pytest

from sharded_models import RUNS, trained
from tenon.sharding.mesh import Mesh

pytest.importorskip("mpi4py")
from distributed.test_mpi_transport import MPIEXEC, mpiexec


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside Python")
@pytest.mark.parametrize("name", ["mlp zero 3", "mlp columns and rows"])
def test_processes_train_to_the_bits_of_devices(name: str, tmp_path: Path) -> None:
    model, sizes, how = RUNS[name]
    mesh = Mesh(sizes)
    ran = mpiexec(mesh.size, str(Path(__file__).with_name("training_ranks.py")), name, str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    losses, parameters = trained(model, mesh, **how)
    for rank in range(mesh.size):
        with np.load(tmp_path / f"{rank}.npz") as found:
            np.testing.assert_array_equal(found["losses"], losses)
            for k, p in enumerate(parameters):
                np.testing.assert_array_equal(found[f"arr_{k}"], p)
