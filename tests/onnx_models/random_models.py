"""Random ONNX models by a vote of three: Tenon, ONNX Runtime and PyTorch; who differs from both others is wrong.

    PYTHONPATH=tests python -m onnx_models.random_models --count 5000 --seed 7 --compiled 0.2

PyTorch computes each node as it is added; ONNX Runtime and Tenon run the finished model.  What ONNX Runtime does not
take is compared with PyTorch alone.  A model that Tenon gets wrong is written to `--keep`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tenon as tn
from onnx_models.random_nodes import CODES, FAMILIES, Making, Skip

torch = pytest.importorskip("torch")

OPSET = 23


@dataclass
class RandomModel:
    """A model, what it is given, and what PyTorch says of every value."""

    model: Any
    inputs: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]
    kinds: list[str] = field(default_factory=list)


def random_model(seed: str) -> RandomModel:
    """The model of a seed, of up to twelve nodes; all of its values are results."""
    rng = Random(seed)
    made = Making(rng)
    for _ in range(rng.randint(1, 3)):
        rank = rng.choice([0, 1, 2, 2, 3, 4, 4])
        shape = [rng.choice([1, 2, 3, 3, 4, 5]) if rng.random() > 0.02 else 0 for _ in range(rank)]
        kind = rng.choice([torch.float32] * 6 + [torch.float64, torch.int64, torch.int32, torch.bool])
        x = made.weight(*shape, low=-24, high=24)
        made.input(x if kind is torch.float32 else x.to(kind) if kind is not torch.bool else x > 0)
    attempts = 0
    while len(made.nodes) < rng.randint(3, 12) and attempts < 60:
        attempts += 1
        try:
            rng.choice(FAMILIES)(made)
        except (Skip, RuntimeError, IndexError):        # nothing fits, or PyTorch refuses it
            continue
    named = rng.random() < 0.5
    info = helper.make_tensor_value_info
    inputs = [info(n, CODES[x.dtype], [f"{n}_{k}" for k in range(x.ndim)] if named else list(x.shape))
              for n, x in made.inputs.items()]
    results = {n: x for n, x in made.values.items() if n not in made.inputs}
    graph = helper.make_graph(made.nodes, "random", inputs,
                              [info(n, CODES[x.dtype], None) for n, x in results.items()],
                              [onnx.numpy_helper.from_array(x, n) for n, x in made.constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)
    return RandomModel(model, {n: x.numpy() for n, x in made.inputs.items()},
                       {n: x.numpy() for n, x in results.items()}, [n.op_type for n in made.nodes])


def by_runtime(one: RandomModel) -> dict[str, np.ndarray] | None:
    """What ONNX Runtime gives, or None where it does not take the model."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 4, 1, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(one.model.SerializeToString(), options)
        return dict(zip(one.wanted, session.run(list(one.wanted), one.inputs), strict=True))
    except Exception:
        return None


def by_tenon(one: RandomModel, compile: bool) -> dict[str, np.ndarray]:
    found = tn.onnx.Backend.run_model(one.model, list(one.inputs.values()), compile=compile)
    return dict(zip(one.wanted, map(np.asarray, found), strict=True))


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal as single precision allows: a part of the largest element."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind != "f":
        return bool((x == y).all())
    finite = np.isfinite(y)
    largest = float(np.abs(y[finite]).max()) if finite.any() else 0.0
    return bool(np.allclose(x, y, rtol=1e-3, atol=1e-4 * max(1.0, largest), equal_nan=True))


def verdict(one: RandomModel, compile: bool) -> tuple[str, str]:
    """(`agrees`, `refused`, `runtime`, `torch`, `split` or `WRONG`, and the first value that is not agreed on)."""
    theirs = by_runtime(one)
    try:
        ours = by_tenon(one, compile)
    except tn.onnx.UnsupportedError as error:
        return "refused", str(error)
    except Exception as error:
        return "WRONG", f"{type(error).__name__}: {error}"
    for name, wanted in one.wanted.items():
        node = next(n for n in one.model.graph.node if name in n.output)
        where = f"{name} of {node.op_type}"
        with_torch = same(ours[name], wanted)
        if theirs is None:
            if not with_torch:
                return "WRONG", f"{where}, beside PyTorch alone"
            continue
        with_runtime = same(ours[name], theirs[name])
        if with_torch and with_runtime:
            continue
        if with_torch or with_runtime:      # from here on the others differ too
            return ("torch" if with_torch else "runtime"), where
        return ("WRONG" if same(theirs[name], wanted) else "split"), where
    return "agrees", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", type=float, default=0.2, help="the part of the models that is compiled")
    parser.add_argument("--keep", type=Path, help="a folder for the models that are wrong")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts, kinds = Counter[str](), Counter[str]()
    for number in range(given.first, given.first + given.count):
        one = random_model(f"{given.seed}/{number}")
        kinds.update(one.kinds)
        compile = Random(number).random() < given.compiled
        said, where = verdict(one, compile)
        counts[said] += 1
        if said != "agrees":
            print(f"{said} {number}{' compiled' if compile else ''}: {where}", flush=True)
        if said == "WRONG" and given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            onnx.save(one.model, given.keep / f"{number}.onnx")
    print(f"{sum(counts.values())} models of {sum(kinds.values())} nodes, {len(kinds)} kinds: {dict(counts)}")
    sys.exit(counts["WRONG"] > 0)


if __name__ == "__main__":
    main()
