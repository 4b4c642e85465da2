"""How long it takes to capture a 12-layer transformer, before anything is compiled.

    python -m benchmarks.capture_time [ROW ...] [--repeat 3]

Every run is a process of its own that has imported Tenon and made the network and its data; the time is that of the
processor.  `first` is the first capture of the process, `again` one of the same function.  In the rows `_by_data` every
layer has a condition on a tensor, so the functions are rewritten.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.models import gpt
from benchmarks.processes import module

LAYERS = 12
GOAL = 0.5


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", default=list(ROWS))
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.child:
        print(json.dumps(measure(given.rows[0])))
        return
    for row in given.rows:
        command = [sys.executable, *module("capture_time", row, "--child")]
        found = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                 for _ in range(given.repeat)]
        first, again = (statistics.median(run[kind] for run in found) for kind in ("first", "again"))
        print(f"{row:20} first {first:5.2f} s   again {again:5.2f} s   {found[0]['nodes']:6} nodes   "
              f"{first / GOAL:4.2f} of {GOAL} s", flush=True)


def measure(row: str) -> dict[str, float]:
    """In this process: seconds of the processor for a capture and for another one, and the nodes of the graph."""
    import tenon as tn

    step, data = ROWS[row]()
    times = []
    for _ in range(2):
        jitted = tn.jit(step, fullgraph=True)
        started = time.process_time()
        graph = jitted.graph(*data)
        times.append(time.process_time() - started)
    return {"first": times[0], "again": times[1], "nodes": len(graph.nodes)}


# ---------------------------------------------------------------- what is captured

def inference() -> tuple[Callable[..., Any], list[Any]]:
    """The scores of the next tokens."""
    import tenon as tn
    from tenon import nn

    net = gpt(nn, LAYERS, width=64, heads=4, context=32)
    return net, [tn.zeros((2, 32), dtype=tn.int64)]


def inference_by_data() -> tuple[Callable[..., Any], list[Any]]:
    """The same, where a layer may be left out."""
    net, data = inference()
    net.blocks = skipping(net.blocks)       # type: ignore[attr-defined]
    return net, data


def skipping(blocks: Any) -> Any:
    """Layers that each do something else where their input is large."""
    from tenon import nn

    class Skipping(nn.Module):
        def __init__(self, block: Any) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Any) -> Any:
            return self.block(x) if x.abs().mean() < 10.0 else x * 0.5
    return nn.ModuleList([Skipping(block) for block in blocks])


def training(network: Callable[[], tuple[Any, list[Any]]] = inference) -> tuple[Callable[..., Any], list[Any]]:
    """Loss, gradients and the optimizer's update."""
    from tenon import nn, optim

    net, data = network()
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        scores = net(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step, [*data, *data]


def training_by_data() -> tuple[Callable[..., Any], list[Any]]:
    """The step of the network whose layers may be left out."""
    return training(inference_by_data)


ROWS = {f.__name__: f for f in (inference, training, inference_by_data, training_by_data)}

if __name__ == "__main__":
    main()
