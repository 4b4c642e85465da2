"""A graph of Tenon -> the nodes and initializers of an ONNX graph.

A rule says what an operator is in ONNX; one that has no rule is opened into those that it is made of, and where that
leads nowhere, an error names it.  Sizes that are symbols are read off the inputs that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim, Maximum, Quotient, SymbolicDim
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.onnx.element_types import ElementTypes, aligned, number_of
from tenon.onnx.known_values import UnsupportedError
from tenon.onnx.onnx_package import onnx
from tenon.passes.expand import expand
from tenon.types import DType

MAX_SHARED_CONSTANT_ELEMENTS = 64  # elements of constants that are looked up
Rule = Callable[["Writer", Node, list[str]], "str | Sequence[str]"]
RULES: dict[str, tuple[int, Rule]] = {}     # operator -> the opset from which on the rule holds, and the rule
COMPLEX_RULES: dict[str, tuple[int, Rule]] = {}     # the same, where an input or result is complex


def rule(name: str, since: int = 13, rules: dict[str, tuple[int, Rule]] = RULES) -> Callable[[Rule], Rule]:
    """Enter what writes an operator; it returns the names of the results."""
    def enter(function: Rule) -> Rule:
        rules[name] = since, function
        return function
    return enter


def complex_rule(name: str, since: int = 13) -> Callable[[Rule], Rule]:
    """Enter what writes an operator on complex numbers, which have a last axis of two."""
    return rule(name, since, COMPLEX_RULES)


def rules_for(node: Node) -> dict[str, tuple[int, Rule]]:
    """The table that says what a node is in ONNX."""
    is_complex = any(x is not None and x.type.dtype.kind == "c" for x in (*node.inputs, *node.outputs))
    return COMPLEX_RULES if is_complex else RULES


class Writer:
    """What has been written so far."""

    def __init__(self, opset: int):
        self.opset = opset
        self.types = ElementTypes()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[Any, str] = {}
        self.sizes: dict[str, tuple[str, int]] = {}     # symbol -> the value that has it, and on which axis
        self._constants: dict[Any, str] = {}
        self._count = 0

    # ------------------------------------------------------------ names and nodes

    def fresh(self, word: str = "v") -> str:
        """A name that nothing has."""
        self._count += 1
        return f"{word}_{self._count}"

    def emit(self, op_type: str, inputs: Sequence[str], count: int = 1, **attributes: Any) -> Any:
        """A node; the names of its results, or the name where there is one.

        Where the operator does not take what its inputs hold, it takes a wider type, and its results are cast back.
        """
        schema = onnx.defs.get_schema(op_type, self.opset)
        wider = self.types.wider(schema, inputs)
        given = self._cast(schema.inputs, inputs, {t: wide for t, (_, wide) in wider.items()})
        outputs = self._node(schema, given, count, attributes)
        found = self._cast(schema.outputs, outputs, {t: held for t, (held, _) in wider.items()})
        return found[0] if count == 1 else found

    def _cast(self, formals: Sequence[Any], names: Sequence[str], to: Mapping[str, str]) -> list[str]:
        """The values of parameters of these types, cast to others."""
        found = {name: name for name in names}
        for formal, name in aligned(formals, names) if to else ():
            if formal.type_str in to:
                found[name] = self.emit("Cast", [name], to=number_of(to[formal.type_str]))
        return [found[name] for name in names]

    def _node(self, schema: Any, inputs: Sequence[str], count: int, attributes: Mapping[str, Any]) -> list[str]:
        outputs = [self.fresh() for _ in range(count)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(onnx.helper.make_node(schema.name, list(inputs), outputs, **given))
        self.types.note_results(schema, inputs, outputs, given)
        return outputs

    def constant(self, array: Any) -> str:
        """An initializer; equal small ones are one."""
        array = np.asarray(array)
        if array.size > MAX_SHARED_CONSTANT_ELEMENTS:
            return self.weight(array, self.fresh("c"), object())
        return self.weight(array, None, (array.dtype.name, array.shape, array.tobytes()))

    def weight(self, array: Any, name: str | None, key: Any) -> str:
        """An initializer of this name; the same key is the same one."""
        if key not in self._constants:
            self._constants[key] = name or self.fresh("c")
            self.types.note(self._constants[key], onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype))
            self.initializers.append(onnx.numpy_helper.from_array(np.asarray(array), self._constants[key]))
        return self._constants[key]

    def ints(self, numbers: Any) -> str:
        """A constant vector of int64."""
        return self.constant(np.asarray(list(numbers), np.int64))

    def scalar(self, number: Any, dtype: DType) -> str:
        """A constant without axes."""
        return self.constant(np.asarray(number, dtype.numpy))

    def name(self, x: Any) -> str:
        """The name of a node's input."""
        if x is None:
            return ""
        return self.scalar(x.value, x.type.dtype) if isinstance(x, Literal) else self.names[x]

    @contextmanager
    def inside(self) -> Iterator[list[Any]]:
        """A block whose nodes go into a sub-graph."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def declare(self, name: str, dtype: DType, shape: Sequence[Dim]) -> Any:
        """The declaration of an input of a sub-graph."""
        info = value_info(name, dtype, shape)
        self.types.note(name, info.type.tensor_type.elem_type)
        return info

    # ------------------------------------------------------------ sizes

    def note_sizes(self, x: Value, name: str) -> None:
        """Remember where a symbol's number can be read off."""
        for axis, dim in enumerate(x.shape):
            if isinstance(dim, SymbolicDim) and len(dim.terms) == 1:
                (monomial, factor), = dim.terms
                if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], str):
                    self.sizes.setdefault(monomial[0], (name, axis))

    def shape(self, dims: Sequence[Dim]) -> str:
        """A vector of int64 that holds these sizes."""
        if all(isinstance(d, int) for d in dims):
            return self.ints(dims)
        return str(self.emit("Concat", [self.size(d) for d in dims], axis=0))

    def size(self, dim: Dim) -> str:
        """A vector of one int64."""
        if not isinstance(dim, SymbolicDim):
            return self.ints([dim])
        total = None
        for monomial, factor in dim.terms:
            part = None if factor != 1 and monomial else self.ints([factor]) if not monomial else None
            part = self.ints([factor]) if factor != 1 else part
            for atom in monomial:
                found = self._atom(atom)
                part = found if part is None else self.emit("Mul", [part, found])
            assert part is not None
            total = part if total is None else self.emit("Add", [total, part])
        assert total is not None
        return total

    def _atom(self, atom: Any) -> str:
        if isinstance(atom, Quotient):
            return str(self.emit("Div", [self.size(atom.numerator), self.size(atom.denominator)]))
        if isinstance(atom, Maximum):
            return str(self.emit("Max", [self.size(atom.left), self.size(atom.right)]))
        if atom not in self.sizes:
            raise UnsupportedError(f"export: the size {atom} stands alone on no axis of an input",
                                   hint="name it where it is the whole size of an axis")
        name, axis = self.sizes[atom]
        return str(self.emit("Gather", [self.emit("Shape", [name]), self.ints([axis])], axis=0))

    # ------------------------------------------------------------ graphs

    def write(self, graph: Graph, inputs: Sequence[str]) -> list[str]:
        """The names of the results of a graph for inputs of these names."""
        graph = expand(graph, self.has_rule)
        for value, name in zip(graph.params, inputs, strict=True):
            self._enter(value, name)
        for node in graph.nodes:
            self._write_node(node)
        return [self.name(r) for r in graph.results]

    def _enter(self, value: Value, name: str) -> None:
        self.names[value] = name
        if value.dtype.kind != "c":         # else its name holds the parts
            self.types.note(name, element_number(value.dtype))
        self.note_sizes(value, name)

    def has_rule(self, node: Node) -> bool:
        """Whether a node is written as it is."""
        found = rules_for(node).get(node.op.name)
        return found is not None and found[0] <= self.opset

    def _write_node(self, node: Node) -> None:
        rules = rules_for(node)
        if not self.has_rule(node):
            since = rules.get(node.op.name)
            raise UnsupportedError(f"export: {node.op.name} " + (f"needs opset {since[0]}" if since else
                                   "is not supported: ONNX has no operator for it"), where=node.loc)
        found = rules[node.op.name][1](self, node, [self.name(x) for x in node.inputs])
        names = [found] if isinstance(found, str) else list(found)
        for value, name in zip(node.outputs, names, strict=True):
            self._enter(value, name)

    def subgraph(self, name: str, write: Callable[[], Sequence[tuple[str, Any]]], inputs: Sequence[Any] = ()) -> Any:
        """A GraphProto whose nodes `write` emits; it returns the names of the results with their types."""
        with self.inside() as nodes:
            results = write()
            outputs = []
            for found, type in results:
                own = self.emit("Identity", [found])        # a name that is made here
                outputs.append(value_info(own, type.dtype, type.shape))
        return onnx.helper.make_graph(nodes, self.fresh(name), list(inputs), outputs)


def element_number(dtype: DType) -> int:
    """ONNX's number of an element type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy))


def value_info(name: str, dtype: DType, shape: Sequence[Dim]) -> Any:
    """The declaration of an input or result; a symbol is a named size, an expression an open one."""
    if dtype.kind == "c":
        raise UnsupportedError("export: an ONNX model takes and gives no complex numbers",
                               hint="let the function take and give real and imaginary parts: tn.real(x), tn.imag(x)")
    sizes = [d if isinstance(d, int) else _named(d) for d in shape]
    return onnx.helper.make_tensor_value_info(name, element_number(dtype), sizes)


def _named(dim: Dim) -> str | None:
    text = repr(dim)
    return text if text.isidentifier() else None
