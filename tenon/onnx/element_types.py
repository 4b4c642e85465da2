"""The element types of what is exported, and those that an operator takes in their place.

An operator of ONNX takes some element types only: Cos no bfloat16, TopK no bool.  Then it is given a wider type, which
holds the same numbers, and its results are cast back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.onnx.onnx_package import onnx

WIDER = {"bool": ("uint8", "int32", "float"), "uint8": ("int32", "int64"), "int8": ("int32", "int64"),
         "uint16": ("int32", "int64"), "int16": ("int32", "int64"), "uint32": ("int64",),
         "float16": ("float",), "bfloat16": ("float",)}


class ElementTypes:
    """What the values of a model hold, by name, in ONNX's words: `float`, `int64`."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def note(self, name: str, number: int) -> None:
        """Remember what a value holds, by ONNX's number of the type."""
        self.held[name] = onnx.TensorProto.DataType.Name(number).lower()

    def wider(self, schema: Any, inputs: Sequence[str]) -> dict[str, tuple[str, str]]:
        """For type parameters that cannot be what these inputs hold: what they hold, and a wider type."""
        found = {}
        for formal, name in aligned(schema.inputs, inputs):
            held, allowed = self.held.get(name), _allowed(schema, formal)
            if held is not None and allowed and held not in allowed:
                fit = next((w for w in WIDER.get(held, ()) if w in allowed), None)
                if fit is not None:
                    found[formal.type_str] = held, fit
        return found

    def note_results(self, schema: Any, inputs: Sequence[str], outputs: Sequence[str],
                     attributes: Mapping[str, Any]) -> None:
        """Remember what an operator's results hold, as far as its schema says it."""
        bound = {f.type_str: self.held[name] for f, name in aligned(schema.inputs, inputs)
                 if name in self.held and f.is_homogeneous}
        for formal, name in aligned(schema.outputs, outputs):
            if schema.name == "Cast":
                self.note(name, attributes["to"])
            elif (held := bound.get(formal.type_str, _only(_allowed(schema, formal)))) is not None:
                self.held[name] = held


def number_of(held: str) -> int:
    """ONNX's number of an element type."""
    return int(onnx.TensorProto.DataType.Value(held.upper()))


def aligned(formals: Sequence[Any], names: Sequence[str]) -> list[tuple[Any, str]]:
    """The names beside their formal parameters, the last of which may stand for many."""
    return [(formals[min(k, len(formals) - 1)], name) for k, name in enumerate(names) if name and formals]


def _allowed(schema: Any, formal: Any) -> list[str]:
    """The element types that a parameter may hold."""
    texts = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal.type_str),
                 [formal.type_str])
    return [text[len("tensor("):-1] for text in texts if text.startswith("tensor(")]


def _only(allowed: Sequence[str]) -> str | None:
    return allowed[0] if len(allowed) == 1 else None
