"""What each of two MPI processes does in test_pipeline_meshes: three steps of a GPT, whose stages share a weight."""

from functools import partial
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.graph.ir import UPDATES
from tenon.pipeline import compile
from tenon.pipelining.pipelined import Pipeline, Pipelined, PipelineNote
from tenon.sharding.sharded_array import ShardedArray
from tests.pipelining.steps_by_hand import data_for, mean_step, mlp, shallow_gpt


def main() -> None:
    interpreted = partial(compile, backend="reference")
    graph, arrays = mean_step(shallow_gpt(), 16)
    updates = dict(graph.notes[UPDATES])        # parameter -> result
    for schedule in ("1f1b", "zero_bubble"):
        program = Pipelined(graph, PipelineNote(Pipeline(2, 4, schedule), (0, 1)), interpreted)
        given: list[Any] = list(arrays)
        expected = list(arrays)
        for _ in range(3):
            found = program.run(given)
            want = interpreted(graph).run(expected)
            for x, y in zip(found, want, strict=True):
                if not isinstance(x, ShardedArray):
                    np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
            given = [found[updates[k]] if k in updates else x for k, x in enumerate(given)]
            expected = [want[updates[k]] if k in updates else x for k, x in enumerate(expected)]
        away = sum(isinstance(x, ShardedArray) and not x.shards for x in found)
        assert 0.3 * len(found) < away < 0.7 * len(found), "each process has about half of the weights"
        assert not isinstance(found[0], ShardedArray), "both know the loss"
        print("ok", flush=True)
    jitted()


def jitted() -> None:
    """The same as one writes it; weights that the other process has are gathered."""
    def trained(pipeline: Pipeline | None) -> tuple[list[float], list[np.ndarray]]:
        net = mlp()
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        @tn.jit(pipeline=pipeline)
        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        x, y = map(tn.tensor, data_for(net, 16))
        losses = [float(step(x, y)) for _ in range(3)]
        return losses, [tn.distributed.gather(p).numpy() for p in net.parameters()]
    (losses, weights), (others, expected) = trained(Pipeline(2, 4)), trained(None)
    np.testing.assert_allclose(losses, others, rtol=1e-12)
    for x, y in zip(weights, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)
    print("ok", flush=True)


if __name__ == "__main__":
    main()
