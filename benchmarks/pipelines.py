"""A training step as a pipeline on devices of this process: its bubble beside that of theory, for each schedule.

    python -m benchmarks.pipelines [--stages 2] [--micro-batches 8] [--width 256] [--layers 32] [--batch 2048]

    1f1b  theory 11.1%   as it ran 19.6%   by processor time 12.3%   step 1.01x of theory   627 ms (one device 615 ms)

Each device has one core.  "As it ran" is the best of some steps by the wall clock; "by processor time" has the actions
of a step, each with the processor time it took, in the schedule: what devices would do that share no core with others.
The step of theory is an even share of the work, and the bubble of the schedule's paper.  Stages are not quite even: no
gradient goes back from the first layer.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.distributed import Pipeline
from tenon.pipelining.measure_pipeline import measure
from tenon.pipelining.schedules import SCHEDULES
from tenon.pipelining.simulate_schedule import theoretical_bubble

STEPS = 15


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("stages", 2), ("micro-batches", 8), ("width", 256), ("layers", 32), ("batch", 2048)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--schedules", nargs="*", default=list(SCHEDULES), choices=list(SCHEDULES))
    given = options.parse_args(arguments)
    tn.set_num_threads(1)
    one = seconds(training(None, given), batch(given))
    tn.set_num_threads(given.stages)
    for name in given.schedules:
        print(line(name, given, one), flush=True)


def line(name: str, given: argparse.Namespace, one: float) -> str:
    """What a schedule takes, beside theory and one device."""
    chunks = 2 if name == "interleaved" else 1
    step, x = training(Pipeline(given.stages, given.micro_batches, name, chunks), given), batch(given)
    taken = seconds(step, x)
    program = step.capture(x).program
    found = [measure(program, lambda: step(x)) for _ in range(STEPS)]
    best = min((f.as_it_ran for f in found), key=lambda times: times.seconds)
    theory = theoretical_bubble(name, given.stages, given.micro_batches, chunks)
    ratios = [f.by_processor_time.seconds * (1 - theory)
              / (sum(map(f.by_processor_time.busy, range(given.stages))) / given.stages) for f in found]
    bubble = median(f.by_processor_time.bubble for f in found)
    return (f"{name:12} theory {theory:.1%}   as it ran {best.bubble:.1%}   by processor time {bubble:.1%}   "
            f"step {median(ratios):.2f}x of theory   {taken * 1e3:.3g} ms (one device {one * 1e3:.3g} ms)")


def training(pipeline: Pipeline | None, given: argparse.Namespace) -> Any:
    """A step of a deep network of equal layers."""
    tn.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(given.width, given.width) for _ in range(given.layers)))
    optimizer = optim.SGD(net.parameters(), lr=0.01)

    @tn.jit(pipeline=pipeline)
    def step(x: tn.Tensor) -> Any:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step


def batch(given: argparse.Namespace) -> tn.Tensor:
    found: tn.Tensor = tn.tensor(np.random.default_rng(0).standard_normal((given.batch, given.width), np.float32))
    return found


def seconds(step: Any, x: tn.Tensor) -> float:
    """The best of some steps, by the wall clock."""
    found = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step(x)
        found.append(time.perf_counter() - start)
    return min(found)


if __name__ == "__main__":
    main()
