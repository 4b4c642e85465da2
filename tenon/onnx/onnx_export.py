"""A function or module -> an ONNX file: its capture without gradients, written operator by operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon.capture.parameter_sources import Argument, Held
from tenon.capture.result_leaves import FromGraph, FromOutside, RowsOf
from tenon.dims.symbolic_dim import symbol
from tenon.errors import ArgumentError
from tenon.graph.partition import all_nodes
from tenon.onnx import rules  # noqa: F401    enters the rules in the table
from tenon.onnx.graph_writer import Writer, value_info
from tenon.onnx.onnx_package import onnx
from tenon.ops.philox_random import random_advance
from tenon.passes.drop_dead import drop_dead
from tenon.serialization.export import PlainFunction
from tenon.serialization.export import export as exported
from tenon.serialization.input_types import arguments_of
from tenon.serialization.saved_function import Variant
from tenon.serialization.state_names import names_of
from tenon.tensor import Tensor
from tenon.types import TensorType, int64, uint64

OLDEST, DEFAULT = 13, 21
IGNORED = {"do_constant_folding", "dynamo", "export_params", "keep_initializers_as_inputs", "training", "verbose"}
IR_VERSIONS = ((13, 7), (15, 8), (19, 9), (21, 10), (23, 11), (24, 12), (26, 13))      # of the first opset that has it


def export(function: Callable[..., Any], inputs: Any, path: Any = None, *, dynamic: Mapping[str, Any] | None = None,
           opset: int | None = None, random: bool = False, input_names: Sequence[str] | None = None,
           output_names: Sequence[str] | None = None, **theirs: Any) -> Any:
    """Write what a function or module computes as an ONNX model; returns the ModelProto.

    `inputs` are the arguments of a call as in `tn.save`: tensors stand for their types, a text such as "f32[B, 3]" is a
    type with a size that may be any, and `dynamic={"x": {0: "B"}}` names sizes of a tensor.  `opset` is 13 or newer.
    Nothing is written where `path` is None.  A model that is to draw random numbers is exported with `random=True`; it
    draws others in every run.  `input_names` and `output_names` are those of the model; what else PyTorch's `export`
    takes means the same here, `dynamic_axes={"x": [0]}`, `opset_version`, or nothing.

    >>> model = tn.onnx.export(lambda x: tn.relu(x) + 1, ["f32[N, 2]"])
    >>> [node.op_type for node in model.graph.node]
    ['Relu', 'Add']

    Raises UnsupportedError, with the line, for an operator that ONNX has no words for, and ArgumentError for a function
    that changes tensors.  Where the function would raise, the model fails at a `Gather`.
    """
    path, opset = theirs.pop("f", path), theirs.pop("opset_version", opset)
    opset, axes = DEFAULT if opset is None else opset, theirs.pop("dynamic_axes", None)
    if unknown := sorted(theirs.keys() - IGNORED):
        raise ArgumentError(f"export: no argument {unknown[0]!r}", hint="dynamic=, opset=, input_names=, output_names=")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise ArgumentError(f"export: opset {opset} is not one of {OLDEST} to {newest}")
    name = getattr(function, "__name__", type(function).__name__)
    given, named = arguments_of(inputs)
    own = PlainFunction.of(name, function, {}).names(given, named)
    called = [*(input_names or ()), *own[len(input_names or ()):]]
    if axes is not None:
        dynamic = {mine: axes[theirs] if isinstance(axes[theirs], Mapping) else
                   {axis: f"{theirs}_{axis}" for axis in axes[theirs]}
                   for theirs, mine in zip(called, own, strict=False) if theirs in axes}
    made = exported(name, function, inputs, dynamic)
    variant = _without_gradients(made.variants, random)
    model = _model(variant, called, names_of([("", function)]), opset, name, output_names or ())
    onnx.checker.check_model(model)
    if path is not None:
        _store(path, model.SerializeToString())
    return model


def _store(path: Any, data: bytes) -> None:
    """All or nothing: the file is written under another name first."""
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _without_gradients(variants: tuple[Variant, ...], random: bool) -> Variant:
    """The first capture for calls that record nothing."""
    variant = next((v for v in variants if v.recording is not True), variants[0])
    draws = [node for node in all_nodes(variant.graph) if node.op is random_advance]
    if draws and not random:
        raise ArgumentError(f"export: {variant.graph.name} draws random numbers", where=draws[0].loc,
                            hint="net.eval() stops dropout; random=True exports a model that draws its own")
    states = {id(source.holder) for source, _, _ in variant.assigned if draws and isinstance(source, Held)
              and isinstance(source.holder, Tensor) and source.holder.dtype is uint64}
    changed = [source for source, _, _ in variant.assigned if id(getattr(source, "holder", None)) not in states]
    if changed or any(result is not None for _, result in variant.gradients):
        raise ArgumentError(f"export: {variant.graph.name} changes tensors, which an ONNX model cannot",
                            hint="a network is exported in evaluation mode: net.eval()")
    return variant


def _model(variant: Variant, arguments: Sequence[str], names: Mapping[int, list[str]], opset: int, name: str,
           output_names: Sequence[str]) -> Any:
    writer = Writer(opset)
    declared, given = [], []
    for value, source in zip(variant.graph.params, variant.sources, strict=True):
        if isinstance(source, Argument):
            given.append(_identifier(arguments[source.position]))
            declared.append(value_info(given[-1], value.dtype, value.shape))
        else:
            given.append(_weight(writer, source, names))
    results = writer.write(drop_dead(variant.graph), given)       # what nobody reads needs no words
    outputs = []
    leaves = [leaf for leaf in variant.output.leaves if leaf is not None]       # None says that something is not there
    for k, leaf in enumerate(leaves):
        own = output_names[k] if k < len(output_names) else f"output_{k}" if len(leaves) > 1 else "output"
        found, type = _result(writer, leaf, results, variant, names)
        if k == 0 and variant.failed is not None:
            found = _unless_failed(writer, found, results[variant.failed])
        writer.nodes.append(onnx.helper.make_node("Identity", [found], [own]))
        outputs.append(value_info(own, type.dtype, type.shape))
    _drop_identities(writer, {o.name for o in outputs}, set(given))
    read = {name for node in writer.nodes for name in _reads(node)}
    writer.initializers = [x for x in writer.initializers if x.name in read]    # but for states of generators
    graph = onnx.helper.make_graph(writer.nodes, _identifier(name) or "function", declared, outputs,
                                   writer.initializers)
    version = max(v for o, v in IR_VERSIONS if o <= opset)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=version,
                                  producer_name="tenon")


def _unless_failed(writer: Writer, found: str, failed: str) -> str:
    """A result, by an index that there is none of where the graph does not hold: ONNX has no word for an error."""
    index = writer.emit("Where", [failed, writer.scalar(1 << 40, int64), writer.scalar(0, int64)])
    return str(writer.emit("Gather", [writer.emit("Unsqueeze", [found, writer.ints([0])]), index], axis=0))


def _weight(writer: Writer, source: Any, names: Mapping[int, list[str]]) -> str:
    """An initializer for a tensor from outside, under the name that it is found by."""
    holder = source.holder if isinstance(source, Held) else None
    if holder is None:
        raise ArgumentError("export: the function reads a gradient, which an ONNX model has not")
    array = holder.numpy() if isinstance(holder, Tensor) else np.asarray(holder)
    found = names.get(id(holder))
    return writer.weight(array, found[0] if found and found[0] else writer.fresh("weight"), id(holder))


def _result(writer: Writer, leaf: Any, results: list[str], variant: Variant, names: Mapping[int, list[str]]) -> Any:
    """The name and type of a leaf of what the function returns."""
    if isinstance(leaf, FromGraph):
        return results[leaf.index], variant.graph.results[leaf.index].type
    if isinstance(leaf, FromOutside):
        source = leaf.source
        if isinstance(source, Argument):
            k = variant.sources.index(source)
            return writer.names[variant.graph.params[k]], variant.graph.params[k].type
        if isinstance(source, Held) and isinstance(source.holder, Tensor):
            return _weight(writer, source, names), source.holder.type
    if isinstance(leaf, RowsOf) and leaf.form is None and len(leaf.rows) == 1:
        found, whole = _result(writer, leaf.rows[0], results, variant, names)
        end = writer.emit("Unsqueeze", [results[leaf.count.index], writer.ints([0])])
        rows = writer.emit("Slice", [found, writer.ints([0]), end, writer.ints([0])])
        return rows, TensorType(whole.dtype, (symbol("rows"), *whole.shape[1:]))
    if isinstance(leaf, RowsOf):
        raise ArgumentError("export: the function returns a list whose length the data decide, and a model returns "
                            "tensors", hint="return tn.stack(xs)")
    raise ArgumentError(f"export: the function returns a {type(leaf).__name__}, and a model returns tensors")


def _drop_identities(writer: Writer, outputs: set[str], inputs: set[str]) -> None:
    """Let the node that makes a result carry its name, where nothing else reads it."""
    kept = []
    made = {name: node for node in writer.nodes for name in node.output}
    reads = [name for node in writer.nodes for name in _reads(node)]
    for node in writer.nodes:
        maker = made.get(node.input[0]) if node.op_type == "Identity" else None
        if maker is not None and node.output[0] in outputs and reads.count(node.input[0]) == 1:
            place = list(maker.output).index(node.input[0])
            maker.output[place] = node.output[0]
            continue
        kept.append(node)
    writer.nodes = kept


def _reads(node: Any) -> list[str]:
    """What a node reads, in its sub-graphs too."""
    found = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found += [name for inner in attribute.g.node for name in _reads(inner)]
            found += [o.name for o in attribute.g.output]
    return found


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_." else "_" for c in name)
