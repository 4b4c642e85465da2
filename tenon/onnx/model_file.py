"""A path, bytes or a ModelProto -> a model whose weights are in it, verified.

What is read may come from anybody: sizes are checked before memory is taken, names and cycles before anything runs, and
data outside of the file is read only from plain files of the model's own folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenon.errors import TenonError
from tenon.onnx.onnx_package import onnx

MAX_BYTES = (1 << 31) - 1       # of a protobuf message
DEEPEST = 32                    # sub-graphs in sub-graphs
BITS = {"STRING": 0, "UNDEFINED": 0, "FLOAT": 32, "DOUBLE": 64, "COMPLEX64": 64, "COMPLEX128": 128, "INT64": 64,
        "UINT64": 64, "INT32": 32, "UINT32": 32, "INT16": 16, "UINT16": 16, "FLOAT16": 16, "BFLOAT16": 16,
        "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}      # others have 8


class ModelError(TenonError, ValueError):
    """A model that is damaged, or says what cannot be."""


def read_model(source: Any) -> Any:
    """The ModelProto in a file, in bytes, or given as it is; its weights are within."""
    folder = None
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = _parsed(bytes(source), "the bytes")
    else:
        path = Path(source)
        if not path.is_file():
            raise ModelError(f"there is no file {path}")
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path} has {path.stat().st_size} bytes, and a model has less than 2 GB",
                             hint="larger weights stand in files beside it: external data")
        model, folder = _parsed(path.read_bytes(), str(path)), path.parent
    check_model(model, folder)
    return model


def _parsed(data: bytes, name: str) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:      # DecodeError of protobuf, which is no dependency of ours
        raise ModelError(f"{name} is no ONNX model: {error}") from None
    if not model.HasField("graph"):
        raise ModelError(f"{name} is no ONNX model: it has no graph")
    return model


def check_model(model: Any, folder: Path | None) -> None:
    """Raise ModelError where the model contradicts itself; read what stands in files beside it."""
    versions = {(o.domain, o.version) for o in model.opset_import}
    domains = [domain for domain, _ in versions]
    if len(domains) != len(set(domains)):
        raise ModelError("a domain of operators is imported in two versions")
    if not any(d in ("", "ai.onnx") for d in domains) and model.graph.node and not domains:
        raise ModelError("the model does not say which opset it uses")
    seen = set()
    for function in model.functions:
        key = function.domain, function.name, function.overload
        if key in seen:
            raise ModelError(f"the function {function.name!r} is defined twice")
        seen.add(key)
        for name, values in (("an input", function.input), ("an attribute", function.attribute)):
            if len(values) != len(set(values)):
                raise ModelError(f"the function {function.name!r} names {name} twice")
        _check_nodes(function.node, set(function.input), function.output, f"the function {function.name!r}", 0)
    _check_calls(model)
    for tensor in tensors_of(model):
        _check_tensor(tensor, folder)
    check_graph(model.graph, set(), 0)


def check_graph(graph: Any, around: set[str], depth: int) -> None:
    """Every name is defined once, before it is used."""
    where = f"the graph {graph.name!r}"
    if depth > DEEPEST:
        raise ModelError(f"{where} stands in more than {DEEPEST} others")
    inputs = [x.name for x in graph.input]
    weights = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    for names, what in ((inputs, "inputs"), (weights, "initializers")):
        if len(names) != len(set(names)):
            raise ModelError(f"{where} has two {what} of one name")
    _check_nodes(graph.node, around | set(inputs) | set(weights), [x.name for x in graph.output], where, depth)


def _check_nodes(nodes: Any, known: set[str], outputs: Any, where: str, depth: int) -> None:
    known = set(known)
    made: set[str] = set()
    for node in nodes:
        for name in node.input:
            if name and name not in known:
                later = any(name in other.output for other in nodes)
                raise ModelError(f"{where}: {node.op_type} {node.name!r} reads {name!r}, which "
                                 + ("is computed later: nodes form a cycle or are out of order" if later
                                    else "nothing computes"))
        if len({a.name for a in node.attribute}) != len(node.attribute):
            raise ModelError(f"{where}: {node.op_type} {node.name!r} has an attribute twice")
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                check_graph(graph, known, depth + 1)
        for name in filter(None, node.output):
            if name in made:
                raise ModelError(f"{where}: {name!r} is computed twice")
            made.add(name)
        known.update(node.output)
    for name in outputs:
        if name not in known:
            raise ModelError(f"{where}: nothing computes the result {name!r}")


def _check_calls(model: Any) -> None:
    """No function calls itself, on whatever way; and what they call in all stays within bounds."""
    bodies = {(f.domain, f.name): f for f in model.functions}
    costs: dict[Any, int] = {}

    def cost(key: Any, above: tuple[Any, ...]) -> int:
        if key in above:
            raise ModelError(f"the function {key[1]!r} calls itself")
        if key not in costs:
            costs[key] = sum(1 + (cost(k, (*above, key)) if (k := (n.domain, n.op_type)) in bodies else 0)
                             for n in _all_nodes(bodies[key].node))
            if costs[key] > 1_000_000:
                raise ModelError(f"the function {key[1]!r} is more than a million nodes, written out")
        return costs[key]

    total = sum(cost(k, ()) for n in _all_nodes(model.graph.node) if (k := (n.domain, n.op_type)) in bodies)
    if total > 1_000_000:
        raise ModelError("the functions of the model are more than a million nodes, written out")
    for key in bodies:
        cost(key, ())


def _all_nodes(nodes: Any, depth: int = 0) -> Iterator[Any]:
    if depth > DEEPEST:
        raise ModelError(f"graphs stand in more than {DEEPEST} others")
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                yield from _all_nodes(graph.node, depth + 1)


def tensors_of(model: Any) -> Iterator[Any]:
    """Every TensorProto of the model, wherever it stands."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for a in node.attribute:
            if a.HasField("t"):
                yield a.t
            if a.HasField("sparse_tensor"):
                yield from (a.sparse_tensor.values, a.sparse_tensor.indices)
            yield from a.tensors
            for graph in (a.g, *a.graphs) if a.type in (5, 10) else ():
                yield from _tensors_of_graph(graph)


def _check_tensor(tensor: Any, folder: Path | None) -> None:
    """Its sizes are those of its data, which is read where it stands in another file."""
    label = f"the tensor {tensor.name!r}"
    count = 1
    for size in tensor.dims:
        if size < 0:
            raise ModelError(f"{label} has an axis of size {size}")
        count *= size
    try:
        name = onnx.TensorProto.DataType.Name(tensor.data_type)
    except ValueError:
        raise ModelError(f"{label} is of type {tensor.data_type}, which there is not") from None
    if name == "UNDEFINED":
        raise ModelError(f"{label} has no type")
    bits = BITS.get(name, 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _read_beside(tensor, folder, (count * bits + 7) // 8, label)
    elif name == "STRING":
        if len(tensor.string_data) != count:
            raise ModelError(f"{label} has {len(tensor.string_data)} texts, and its sizes say {count}")
    elif tensor.HasField("raw_data"):
        if len(tensor.raw_data) != (count * bits + 7) // 8:
            raise ModelError(f"{label} has {len(tensor.raw_data)} bytes, and its sizes {list(tensor.dims)} say "
                             f"{(count * bits + 7) // 8}")
    else:
        _check_typed(tensor, name, count, bits, label)


def _check_typed(tensor: Any, name: str, count: int, bits: int, label: str) -> None:
    fields = {"FLOAT": tensor.float_data, "COMPLEX64": tensor.float_data, "DOUBLE": tensor.double_data,
              "COMPLEX128": tensor.double_data, "INT64": tensor.int64_data, "UINT64": tensor.uint64_data,
              "UINT32": tensor.uint64_data}
    expected = 2 * count if name.startswith("COMPLEX") else -(-count * bits // 8) if bits < 8 else count
    found = len(fields.get(name, tensor.int32_data))
    if found != expected:
        raise ModelError(f"{label} has {found} elements, and its sizes {list(tensor.dims)} say {expected}")


def _read_beside(tensor: Any, folder: Path | None, size: int, label: str) -> None:
    """Put the data of a file beside the model into the tensor."""
    if folder is None:
        raise ModelError(f"{label} stands in another file, and this model has no folder", hint="give its path")
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    path = _confined(folder, location, label)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise ModelError(f"{label}: offset and length are no numbers") from None
    there = path.stat().st_size
    if length != size or not 0 <= offset <= there - length:
        raise ModelError(f"{label} needs {size} bytes, and is given {length} at {offset} of {location!r}, which has "
                         f"{there}")
    with path.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _confined(folder: Path, location: str, label: str) -> Path:
    """The file of this name in the folder: no way out of it, and no links."""
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or os.path.isabs(location) or ".." in parts or ":" in parts[0]:
        raise ModelError(f"{label} stands in {location!r}, which is not within the model's folder")
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise ModelError(f"{label} stands in {location!r}, which goes by a link")
    if not path.exists():
        raise ModelError(f"{label} stands in {location!r}, which is not there")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise ModelError(f"{label} stands in {location!r}, which is no plain file")
    return path
