"""What a loop carries from iteration to iteration: a nest whose tensors keep their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.capture.pytree import Structure, flatten, form
from tenon.capture.unify_types import as_tensor, described, is_data, is_number, labels, lifted, same
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.promotion import common
from tenon.records import dataclass
from tenon.tensor import Tensor


@dataclass(frozen=True)
class Carried:
    """A nest whose tensors a loop carries.  `weak`: the numbers that they came from, whose type is not settled."""

    name: str
    structure: Structure
    leaves: tuple[Any, ...]
    weak: tuple[Any, ...]

    @staticmethod
    def of(name: str, init: Any) -> Carried:
        """Before the first iteration."""
        leaves, structure = flatten(init)
        listed = lifted(leaves)
        return Carried(name, structure, tuple(as_tensor(x) for x in listed),
                       tuple(x if is_number(x) else None for x in listed))

    @property
    def tensors(self) -> list[Tensor]:
        """What is carried in the graph."""
        return [x for x in self.leaves if isinstance(x, Tensor)]

    def nest(self, tensors: Sequence[Any] | None = None) -> Any:
        """The nest, with these tensors."""
        given = iter(self.tensors if tensors is None else tensors)
        return self.structure.build(next(given) if isinstance(x, Tensor) else x for x in self.leaves)

    def followed_by(self, result: Any) -> Carried:
        """After an iteration that returned this.  Raises where a type or the form changes."""
        leaves, structure = flatten(result)
        listed = lifted(leaves)
        types = self.types_after(listed, structure)
        return Carried(self.name, structure, tuple(as_tensor(x, t) for x, t in zip(listed, types, strict=True)),
                       (None,) * len(listed))

    def types_after(self, leaves: Sequence[Any], structure: Structure) -> list[Any]:
        """The element type of every leaf that an iteration returned; other than before only for weak ones."""
        if structure != self.structure:
            raise ArgumentError(f"{self.name}: what is carried has the form {form(self.structure)}, and the body "
                                f"returns {form(structure)}")
        return [self._type_after(*each) for each in zip(self.leaves, leaves, self.weak, labels(structure, "carry"),
                                                        strict=True)]

    def _type_after(self, before: Any, after: Any, weak: Any, label: str) -> Any:
        if not is_data(before) or not is_data(after):
            if not same(before, after):
                raise ArgumentError(f"{self.name}: {label} is {described(before)}, and the body returns "
                                    f"{described(after)}", hint="what a loop carries keeps its type")
            return None
        shape = after.shape if isinstance(after, Tensor) else ()
        found = after.dtype if isinstance(after, Tensor) else common((before.dtype, type(after)))
        expected = before.dtype if weak is None else common((found, type(weak)))
        if shape != before.shape or expected is not found:
            raise (ShapeError if shape != before.shape else DTypeError)(
                f"{self.name}: {label} is {before.type}, and the body returns {described(after)}",
                hint="what a loop carries keeps its type and shape; cast it before the loop, or in the body")
        return found

    def with_types(self, types: Sequence[Any]) -> Carried:
        """The weak ones with other element types."""
        return Carried(self.name, self.structure, tuple(as_tensor(w, t) if w is not None else x for x, t, w in zip(
            self.leaves, types, self.weak, strict=True)), self.weak)
