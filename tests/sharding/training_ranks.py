"""One rank of a training step on a mesh, by MPI: its losses and its parameters, to a folder."""

import sys
from pathlib import Path

import numpy as np

from sharded_models import RUNS, trained
from tenon import distributed
from tenon.sharding.mesh import Mesh

name, folder = sys.argv[1], Path(sys.argv[2])
model, sizes, how = RUNS[name]
losses, parameters = trained(model, Mesh(sizes), **how)
np.savez(folder / f"{distributed.rank()}.npz", *parameters, losses=np.array(losses))
