"""The state of a run of several processes <-> a folder, from which any number of processes goes on.

    run = tn.distributed.Checkpoint("run", model=net, optimizer=opt, loader=loader)
    first = run.restore().get("epoch", 0)
"""

from __future__ import annotations

import os
from typing import Any

from tenon.distributed.checkpoint_index import NAME
from tenon.distributed.sharded_files import load, save
from tenon.serialization.run_checkpoint import Checkpoint


class RunFolder(Checkpoint):
    """`tn.Checkpoint` for several processes: all of them make it, save and restore together.

    Each process writes and reads its own parts of tensors that are split over a mesh.

    >>> import tempfile
    >>> folder, net = tempfile.mkdtemp(), nn.Linear(3, 2)
    >>> tn.distributed.Checkpoint(folder, model=net).save(epoch=3)
    >>> tn.distributed.Checkpoint(folder, model=net).restore()
    {'epoch': 3}
    """

    def exists(self) -> bool:
        """Whether there is an index."""
        return os.path.lexists(os.path.join(os.fspath(self.path), NAME))

    def write(self, state: dict[str, Any]) -> None:
        """Write a state: each process its parts."""
        save(state, self.path)

    def read(self, before: dict[str, Any]) -> Any:
        """The state that was written: in parts what is in parts now."""
        return load(self.path, like=before)
