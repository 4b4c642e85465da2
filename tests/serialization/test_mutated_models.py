"""Files of models from anybody are refused with one kind of error, or are whole: nothing crashes, hangs or takes memory.

Single files, each with one lie; and random ones.  `python tests/serialization/mutated_models.py` tries more.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenon as tn
from serialization.mutated_models import findings, joined, split
from serialization.programs import PROGRAMS
from tenon.tensor_file import DamagedFile

KINDS = ("dynamic_batch", "rnn_until", "adam_step", "nested_inputs", "several_outputs", "gru_trained_through_a_loop",
         "classes_of_the_user", "tied_weights", "step_that_leaves_gradients")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("models")
    for name in KINDS:
        function, args, options = PROGRAMS[name]()
        tn.save(folder / name, function, args, **options)
    return [(folder / name).read_bytes() for name in KINDS]


def test_random_files_are_refused_or_whole(files: list[bytes], tmp_path: Path, seed: int) -> None:
    counts, bad = findings(files, tmp_path, 5000, seed, 0.02, seconds=12)
    assert not bad
    assert counts["refused"] > 100 and counts["accepted"] > 20


GRAPH = "tenon.graph.f.0"
FUNCTION = "tenon.function.f"


def f(x: Any) -> Any:
    return {"y": x * W, "n": x.shape[0]}


W = tn.nn.Parameter([1.0, 2.0])


def said(change: Callable[[Any], Any], key: str = FUNCTION) -> Callable[[Any], None]:
    """A change of what the header says in JSON."""
    def changed(header: Any) -> None:
        tree = json.loads(header["__metadata__"][key])
        change(tree)
        header["__metadata__"][key] = json.dumps(tree)
    return changed


def text(old: str, new: str) -> Callable[[Any], None]:
    """A change of the text of the graph."""
    def changed(header: Any) -> None:
        assert old in header["__metadata__"][GRAPH]
        header["__metadata__"][GRAPH] = header["__metadata__"][GRAPH].replace(old, new)
    return changed


def variant(**fields: Any) -> Callable[[Any], None]:
    return said(lambda tree: tree["variants"][0].update(fields))


LIES: dict[str, tuple[Callable[[Any], None], str]] = {
    "an unknown operator": (text("multiply(", "os_system("), "no operator named 'os_system'"),
    "code in the place of a size": (text("f32[N, 2]", "f32[__import__('os').getpid(), 2]"), "not"),
    "a type that the rule does not give": (text("v0: f32[N, 2]", "v0: f32[N, 3]"), "states f32"),
    "a value read before it is made": (text("return v", "return w"), "no value named"),
    "a weight of another type": (lambda header: header["W"].update(dtype="BF16", shape=[4]), "is another type"),
    "a parameter of another type": (text("W: f32[2]", "W: f32[3]"), "do not broadcast"),
    "a graph of another name": (lambda header: header["__metadata__"].pop(GRAPH), "tenon.graph.f.0"),
    "a state that is not there": (variant(reads=[0, "V"]), "names a tensor 'V'"),
    "an argument that is not there": (variant(reads=[7, "W"]), "7 is not in list"),
    "one weight twice": (variant(reads=["W", "W"]), "what it reads is another type"),
    "a result that is not there": (variant(carrying=[9]), "9 is no number from 0"),
    "a store of another type": (variant(assigned=[["W", 0, False]]), "in another type"),
    "a condition that is a matrix": (variant(failed=0), "a condition is f32"),
    "a size from nowhere": (variant(sizes=[["Q", "==", "3", False]]), "compares no sizes"),
    "code in the place of a name": (said(lambda tree: tree.update(arguments=[["x"]])), "are no names"),
    "more names than arguments": (said(lambda tree: tree.update(arguments=["x", "y"])), "2 names"),
    "a class that it would find": (said(lambda tree: tree.update(structure=["os.system", ["leaf"]])), "no structure"),
    "fields that are methods": (variant(returns={"structure": ["fields", ["__class__"], ["leaf"]],
                                                 "leaves": [{"value": 1}]}), "no structure"),
    "a cycle of names": (said(lambda tree: tree.update(same={"A": "B", "B": "A"}), "tenon.state"), "'B'"),
    "a parameter that is not there": (said(lambda tree: tree.update(parameters=["V"]), "tenon.state"), "'V'"),
    "a depth without end": (lambda header: header["__metadata__"].update({FUNCTION: "[" * 100_000}), "no model"),
    "a name twice": (lambda header: header["__metadata__"].update({FUNCTION: '{"a": 1, "a": 2}'}), "stands twice"),
    "a format of the future": (lambda header: header["__metadata__"].update({"tenon.format": "99"}), "format is 99"),
    "a format that is none": (lambda header: header["__metadata__"].update({"tenon.format": "-1"}), "is no number"),
    "no function": (lambda header: header["__metadata__"].pop(FUNCTION), "holds no function"),
    "a graph without end": (lambda header: header["__metadata__"].update({GRAPH: "x" * (9 << 20)}), "too long"),
    "a tensor as large as no memory": (lambda header: header["W"].update(shape=[1 << 62]), "larger than any memory"),
    "an integer weight to be trained": (lambda header: header["W"].update(dtype="I32"), "only floating"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused(tmp_path: Path, lie: str) -> None:
    tn.save(tmp_path / "f", f, ["f32[N, 2]"])
    header, elements = split((tmp_path / "f").read_bytes())
    change, words = LIES[lie]
    change(header)
    (tmp_path / "f").write_bytes(joined(header, elements))
    with pytest.raises(DamagedFile) as refused:
        tn.load(tmp_path / "f")
    assert "is not a safetensors file, or is damaged" in refused.value.what and words in refused.value.what
