"""What each of two MPI processes does in test_pipeline_meshes: three steps of a GPT, whose stages share a weight."""

from functools import partial
from typing import Any

import numpy as np

from tenon.graph.ir import UPDATES
from tenon.pipeline import compile
from tenon.pipelining.pipelined import Pipeline, Pipelined, PipelineNote
from tenon.sharding.sharded_array import ShardedArray
from tests.pipelining.steps_by_hand import mean_step, shallow_gpt


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


if __name__ == "__main__":
    main()
