"""Run by every rank of `mpiexec`: a step placed on all processes, as costs say for which messages are free."""

import sys
from pathlib import Path

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.debug.device_timelines import device_timelines
from tenon.placement import place_costs
from tenon.placement.on_processes import ProcessesProgram

if __name__ == "__main__":
    place_costs._measured[:] = [place_costs.Rates(message=0.0, byte=0.0, threads=1)]
    tn.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)) for _ in range(2)]
    optimizer = optim.SGD([p for net in nets for p in net.parameters()], lr=0.1)

    @tn.jit(place="processes")
    def step(x: tn.Tensor) -> tn.Tensor:
        loss = ((nets[0](x) - nets[1](x)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    x = tn.rand(32, 64)
    losses = [float(step(x)) for _ in range(3)]
    assert isinstance(step.capture(x).program, ProcessesProgram) == (tn.distributed.size() > 1)
    np.save(Path(sys.argv[1]) / f"{tn.distributed.rank()}_of_{tn.distributed.size()}.npy",
            np.array([*losses, float(nets[1][2].weight.sum())]))
    if tn.distributed.size() > 1:
        assert "process 1" in str(device_timelines(step, x))
    other = tn.rand(32, 64) * (1.0 + tn.distributed.rank())      # what is given differs: all are told

    @tn.jit(place="processes")
    def unlike(x: tn.Tensor) -> tn.Tensor:
        y = x @ x.T
        return (tn.exp(y) if tn.distributed.rank() else y).sum()

    @tn.jit(place="processes")
    def towers(x: tn.Tensor) -> tn.Tensor:
        return (x @ x.T).sum() + tn.tanh(x.T @ x).sum()
    if tn.distributed.size() > 1:
        for wrong, given, told in ((towers, other, "x"), (unlike, x, "different graphs of unlike, at node 3")):
            try:
                wrong(given)
            except tn.errors.CommunicationError as error:
                assert told in str(error), error
            else:
                raise AssertionError("nothing was told")
