"""The operators' definitions in `tenon.ops` -> what editors and type checkers read: their signatures.

    python tools/generate_stubs.py          # writes tenon/__init__.pyi, ops/public.pyi and tensor_methods.pyi

Parameters are those of a definition, and other libraries' names for those that have a default.  Their types are its
annotations; where it has none, what the name stands for in every operator, or the default.  What an operator returns is
read off its examples, what a function returns off its annotation: there `Any` stands for a tensor, and `Any | ...` for
what the arguments decide.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any

import tenon as tn
from tenon.graph.op import Op
from tenon.graph.synonyms import SYNONYMS
from tenon.ops import PUBLIC
from tenon.ops.methods import COMPARISONS, NAMED_TYPES, PROPERTIES, PYTHON_OPERATORS, UNARY, is_method
from tenon.pytorch_methods import METHODS
from tenon.tensor import Tensor
from tenon.types import DType

PACKAGE = Path(__file__).parent.parent / "tenon"
AXES = "int | Sequence[int] | None"
# What a name stands for, in whatever operator it is a parameter.
NAMES = dict.fromkeys((
    "x", "y", "z", "xs", "weight", "bias", "indices", "updates", "mask", "target", "running_mean", "running_var",
    "grid", "theta", "value", "source", "pos_weight", "boundaries", "fweights", "aweights", "factor"), "TensorLike")
NAMES |= {"axis": AXES, "axes": AXES, "dtype": "DTypeLike", "shape": "int | Sequence[Any]"}
BUILTINS = re.compile(r"(?<![\w.])(bool|int|float|complex|str|tuple|type)(?![\w(])")

WRITTEN = "Written by tools/generate_stubs.py from the operators' definitions."
HEAD = f'''"""{WRITTEN}"""

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

'''
ALIASES = '''
TensorLike: TypeAlias = Tensor | np.ndarray[Any, Any] | np.generic | bool | int | float | complex
DTypeLike: TypeAlias = DType | np.dtype[Any] | type | str

'''


def texts() -> dict[Path, str]:
    """What each file holds."""
    return {PACKAGE / "__init__.pyi": package_text(), PACKAGE / "ops" / "public.pyi": public_text(),
            PACKAGE / "tensor_methods.pyi": methods_text(),
            **{PACKAGE / f"{name}.pyi": namespace_text(getattr(tn, name)) for name in ("linalg", "fft", "special")}}


def package_text() -> str:
    """The names of `tn`, from where they are defined."""
    lines = ["from typing import Any", "from tenon.ops.public import *", "from tenon.types import DType"]
    for name in sorted({*dir(tn), *tn._MODULES}):
        if name not in PUBLIC and not name.startswith("_"):
            lines += [f"from tenon import {name} as {name}"] if name in tn._MODULES else places(name, getattr(tn, name))
    lines += ["__version__: str", "__array_api_version__: str"]
    return f'"""{WRITTEN}"""\n\n' + "\n".join(sorted(lines, key=lambda line: not line.startswith("from"))) + "\n"


def places(name: str, value: Any) -> list[str]:
    """The lines that say what a name of `tn` is."""
    if isinstance(value, DType):
        return [f"{name}: DType"]
    if value is tuple:
        return [f"{name} = tuple[Any, ...]"]
    if isinstance(value, ModuleType):
        package, _, there = value.__name__.rpartition(".")
    else:
        package, there = getattr(value, "__module__", None) or "tenon.array_api", getattr(value, "__name__", name)
    if there == name:
        return [f"from {package} import {name} as {name}"]
    # an import by another name is private in a stub
    return [f"from {package} import {there} as _{name}", f"{name} = _{name}"]


def public_text() -> str:
    """The module of all operators and functions."""
    imports = sorted(["from tenon.tensor import Tensor", "from tenon.types import DType",
                      *result_classes(PUBLIC.values())])
    lines = [f"def {name}{signature(call)}: ..." for name, call in sorted(PUBLIC.items())]
    return in_full(HEAD, "\n".join(imports) + "\n" + ALIASES + "\n".join(lines) + "\n")


def namespace_text(module: ModuleType) -> str:
    """A namespace of operators and functions."""
    named = {name: getattr(module, name) for name in sorted(module.__all__)}
    calls = {name: call for name, call in named.items() if not isinstance(call, type)}
    imports = sorted(["from tenon.ops.public import DTypeLike, TensorLike", "from tenon.tensor import Tensor",
                      *result_classes(calls.values())])
    others = [line for name in named.keys() - calls.keys() for line in places(name, named[name])]
    imports += [line for line in others if line.startswith("from")]
    lines = [line for line in others if not line.startswith("from")]
    lines += [f"def {name}{signature(call)}: ..." for name, call in calls.items()]
    return in_full(HEAD, "\n".join(imports) + "\n\n" + "\n".join(lines) + "\n")


def methods_text() -> str:
    """The class of all methods of a tensor that are operators."""
    imports = sorted(["from tenon.graph.operators import Operators", "from tenon.tensor import Tensor",
                      "from tenon.ops.public import DTypeLike, TensorLike", "from tenon.random import Generator",
                      *result_classes([*PUBLIC.values(), METHODS["register_hook"]])])
    lines = [f"    {line}" for line in methods()]
    return in_full(HEAD.replace(", TypeAlias", "").replace("import numpy as np\n\n", ""), "\n".join(imports)
                   + "\n\nclass TensorMethods(Operators):\n" + "\n".join(lines) + "\n")


def in_full(head: str, text: str) -> str:
    """Python's types by their full names: operators and methods are called `bool`, `float`, `complex` too."""
    return head + BUILTINS.sub(r"builtins.\1", text).replace("def builtins.", "def ")


def methods() -> Iterator[str]:
    """As `tenon.ops.methods` installs them, but for those that `Tensor` defines itself."""
    for name, call in sorted(PUBLIC.items()):
        if is_method(call) and name not in vars(Tensor):
            if name in PROPERTIES:
                yield "@property"
            yield f"def {name}{signature(call, method=True)}: ..."
    for python, name in (PYTHON_OPERATORS | COMPARISONS).items():
        yield f"def __{python}__(self, other: TensorLike, /) -> {result(PUBLIC[name])}: ..."
    for python, name in PYTHON_OPERATORS.items():
        yield f"def __r{python}__(self, other: TensorLike, /) -> {result(PUBLIC[name])}: ..."
    yield from (f"def __{python}__(self) -> {result(PUBLIC[name])}: ..." for python, name in UNARY.items())
    for name, own in METHODS.items():
        if name not in PUBLIC or is_method(PUBLIC[name]):
            if not isinstance(own, property):
                yield f"def {name}{signature(own, method=True)}: ..."
                continue
            yield from ("@property", f"def {name}(self) -> Tensor: ...")
            if own.fset is not None:
                yield from (f"@{name}.setter", f"def {name}(self, value: Any) -> None: ...")
    yield "def __getitem__(self, key: Any, /) -> Tensor: ..."
    yield "def view(self, *shape: Any) -> Tensor: ..."
    yield from (f"def {name}(self) -> Tensor: ..." for name in (*NAMED_TYPES, "t", "contiguous"))
    yield from (f"def {name}(self) -> int: ..." for name in ("dim", "numel"))


def signature(call: Callable[..., Any], method: bool = False) -> str:
    """Parameters and result; those of a method begin with itself."""
    taken = list(parameters(call))
    return f"({', '.join(['self', *taken[1:]] if method else taken)}) -> {result(call)}"


def parameters(call: Callable[..., Any]) -> Iterator[str]:
    """As they stand in a signature."""
    own = inspect.signature(call).parameters
    more = [f"{name}: {'bool' if name == 'unbiased' else kind(own[meant], call)} = ..."
            for name, meant in other_names(own) if own[meant].default is not Parameter.empty]
    starred = False
    for one in own.values():
        if one.kind is Parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred |= one.kind in (Parameter.VAR_POSITIONAL, Parameter.KEYWORD_ONLY)
        if one.kind is Parameter.VAR_KEYWORD:
            yield from more
        stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
        yield f"{stars}{one.name}: {kind(one, call)}{default(one)}"
    if more and not any(one.kind is Parameter.VAR_KEYWORD for one in own.values()):
        yield from more if starred else ("*", *more)


def other_names(own: Mapping[str, Parameter]) -> Iterator[tuple[str, str]]:
    """What other libraries call the parameters, and what they are called here."""
    for name, meant in SYNONYMS.items():
        if name not in own and (found := next((ours for ours in meant if ours in own), None)) is not None:
            yield name, found


def default(parameter: Parameter) -> str:
    """What it is unless given, where that can be written."""
    value = parameter.default
    if value is Parameter.empty:
        return ""
    return f" = {value!r}" if value is None or type(value) in (bool, int, float, str) else " = ..."


def kind(parameter: Parameter, call: Callable[..., Any]) -> str:
    """The type of a parameter."""
    value, stated = parameter.default, parameter.annotation
    if stated not in ("Any", Parameter.empty):
        return str(stated).replace("Shape", "Sequence[Any]").replace("Dim", "Any")
    if parameter.name == "axis" and "indices" in inspect.signature(call).parameters:
        return "Any"            # PyTorch's order: the axis, then the indices
    if isinstance(call, Op) and parameter.name in call.signature.data:
        found = "TensorLike"
    elif parameter.name == "axis" and type(value) is int and isinstance(call, Op):
        found = "int"
    else:
        found = NAMES.get(parameter.name) or (type(value).__name__ if type(value) in (bool, float, str) else "Any")
    return f"{found} | None" if value is None and found != "Any" and "None" not in found else found


def result(call: Callable[..., Any]) -> str:
    """What a call returns."""
    if isinstance(call, Op):
        return of_examples(call)
    stated = str(inspect.signature(call).return_annotation)
    return "Any" if stated.startswith("Any |") else stated.replace("Any", "Tensor")


def of_examples(op: Op) -> str:
    """As many tensors as its examples say: `f32[2], i64[2]` are two."""
    types = [example.rpartition("->")[2] for example in op.examples if not example.endswith("error")]
    counts = {re.sub(r"\[.*?\]", "", one).count(",") for one in types}
    if len(counts) != 1:
        return "Any"
    return "Tensor" if counts == {0} else f"tuple[{', '.join(['Tensor'] * (counts.pop() + 1))}]"


def result_classes(calls: Iterable[Callable[..., Any]]) -> Iterator[str]:
    """Imports of the named tuples that functions return."""
    found = {(call.__module__, result(call)) for call in calls}
    classes = {getattr(sys.modules[module], name) for module, name in found
               if name.isidentifier() and name not in ("Tensor", "Any")}
    yield from sorted(f"from {kind.__module__} import {kind.__name__}" for kind in classes)


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
