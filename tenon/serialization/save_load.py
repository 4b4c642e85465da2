"""What `tn.save` and `tn.load` do: a state, a nest of tensors, or functions with their state <-> one file.

    tn.save(net, path)                              the weights of a module, or any nest of tensors
    tn.save(path, net, (x,))                        a function or module, to be run without its source
    tn.save(path, {"encode": (net.encode, (x,)), "decode": (net.decode, (z,))})     several, which share their weights
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path as Folder
from tempfile import TemporaryDirectory
from types import MethodType
from typing import Any

from tenon import tensor_file
from tenon.capture.jitted import Jitted
from tenon.config import VERSION
from tenon.errors import ArgumentError
from tenon.interop.torch_checkpoints import is_torch_checkpoint, read_torch_nest
from tenon.nn.module import Module
from tenon.serialization.export import export
from tenon.serialization.loaded_model import LoadedFunction, LoadedModel
from tenon.serialization.nested_tensors import nest_of, tensors_and_structure, texts
from tenon.serialization.read_model import is_model, read_model
from tenon.serialization.saved_function import Function, Model
from tenon.serialization.state_names import names_of
from tenon.serialization.write_model import PREFIX, write_model
from tenon.tensor import Tensor
from tenon.tensor_file import DamagedFile

Path = str | os.PathLike[str]


def save(obj: Any, path: Any, inputs: Any = None, *, metadata: Mapping[str, str] | None = None,
         dynamic: Mapping[str, Any] | None = None) -> None:
    """Write tensors, or functions with all that they need, to one safetensors file; the path may come first.

    `save(net, path)` writes a module's state, or nested dicts and lists of tensors, arrays, numbers, strings and None.
    `save(path, function, inputs)` writes a function or module that `load` gives back without its source: its graph, its
    weights, what it changes.  `inputs` are its arguments, of which tensors stand for their types; a text such as
    "f32[B, 3]" is a type, in which a name is a size that may change, and `dynamic={"x": {0: "B"}}` names sizes of a
    tensor that is given.  A dict of (function, inputs) writes several that share their state.

    The file is complete, or the one before it still there: it is written under another name and then renamed.
    A path may be a file that is open for writing bytes, too.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> tn.save({"w": tn.ones(2), "epoch": 3}, path)
    >>> tn.load(path)
    {'w': tensor([1., 1.]), 'epoch': 3}
    >>> tn.save(path, lambda x: x * 2, ["f32[B]"])
    >>> tn.load(path)(tn.ones(3))
    tensor([2., 2., 2.])
    """
    if _is_path(obj) and not _is_path(path):
        obj, path = path, obj
    elif inputs is not None and isinstance(inputs, Mapping) and metadata is None and not _is_function(obj):
        inputs, metadata = None, inputs         # save(obj, path, metadata)
    if hasattr(path, "write"):
        with TemporaryDirectory() as folder:
            save(obj, file := Folder(folder) / "written", inputs, metadata=metadata, dynamic=dynamic)
            path.write(file.read_bytes())
        return
    header = texts(metadata or {})
    if isinstance(obj, (LoadedModel, LoadedFunction)) and inputs is None:
        arrays, own = write_model(_again(obj), VERSION)
    elif inputs is not None or _are_functions(obj):
        arrays, own = write_model(_model(obj, inputs, dynamic), VERSION)
    elif _is_function(obj) and not isinstance(obj, Module):
        raise ArgumentError("save: a function is saved for what it takes", hint='tn.save(path, f, ("f32[B, 3]",))')
    else:
        arrays, own = tensors_and_structure(obj)
    if clash := [name for name in header if name in own or name.startswith(PREFIX)]:
        raise ArgumentError(f"save: the metadata {clash[0]!r} are Tenon's own")
    tensor_file.write(path, arrays, {**header, **own})


def load(path: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """What `save` wrote: a model, a nest, or the tensors of any safetensors file by name.

    `map_location` and `weights_only` are PyTorch's: tensors come to the CPU's memory, and never anything but data.

    Nothing of a file is run, and no name in it is looked up.  A checkpoint of PyTorch's is read by PyTorch, as weights
    only.  Raises ArgumentError where the file is no safetensors file or is damaged.
    """
    if hasattr(path, "read"):
        with TemporaryDirectory() as folder:
            (file := Folder(folder) / "given").write_bytes(path.read())
            return load(file)
    path = os.fsdecode(path) if isinstance(path, bytes) else path
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"load: a path was expected, not {type(path).__name__}")
    if os.path.isdir(path):
        raise ArgumentError(f"load: {os.fspath(path)!r} is a directory", hint="give the file that tn.save wrote in it")
    try:
        arrays, header = tensor_file.read(path)
        if is_model(header):
            return LoadedModel(read_model(arrays, header))
    except DamagedFile as error:
        if is_torch_checkpoint(path):
            return read_torch_nest(path)
        raise DamagedFile(f"{os.fspath(path)!r} is not a safetensors file, or is damaged: {error.what}") from None
    return nest_of(arrays, header, os.fspath(path))


def _is_path(x: Any) -> bool:
    return isinstance(x, (str, os.PathLike)) or hasattr(x, "write")


# ---------------------------------------------------------------- functions -> model

def _is_function(obj: Any) -> bool:
    return callable(obj) and not isinstance(obj, (type, Tensor))


def _are_functions(obj: Any) -> bool:
    """Whether it is a dict of (function, inputs)."""
    return isinstance(obj, Mapping) and bool(obj) and all(
        isinstance(x, tuple) and len(x) == 2 and _is_function(x[0]) for x in obj.values())


def _model(obj: Any, inputs: Any, dynamic: Mapping[str, Any] | None) -> Model:
    """The functions as data, and a name for every tensor of their state."""
    if _are_functions(obj):
        if wrong := [name for name in obj if not isinstance(name, str) or not name.isidentifier()]:
            raise ArgumentError(f"save: a function is called {wrong[0]!r}, which is no name")
        given: Mapping[str, tuple[Callable[..., Any], Any]] = obj
    elif _is_function(obj):
        given = {_name(obj): (obj, inputs)}
    else:
        raise ArgumentError(f"save: inputs are for a function, not for a {type(obj).__name__}")
    known: dict[Any, Tensor] = {}
    functions = {name: export(name, function, inputs, dynamic, known) for name, (function, inputs) in given.items()}
    return _with_state(functions, [("", _owner(function)) for function, _ in given.values()])


def _name(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "function"


def _owner(function: Any) -> Any:
    """The module that a function or method belongs to; itself where there is none."""
    if isinstance(function, MethodType):
        return _owner(function.__self__) if isinstance(function.__self__, Module) else function
    return _owner(function.function) if isinstance(function, Jitted) else function


def _with_state(functions: Mapping[str, Function], roots: Any) -> Model:
    """The model of these functions: the tensors that they read and assign, and all of the modules that they are."""
    names = names_of(roots)
    state: dict[str, Tensor] = {}
    for _, root in roots:
        if isinstance(root, Module):
            state |= root._state()
    gradients: dict[str, Tensor] = {}
    known = {id(x) for x in state.values()}
    for x in (x for function in functions.values() for variant in function.variants for x in variant.all_held()):
        if id(x) not in known:
            known.add(id(x))
            state[_unused(next(iter(names.get(id(x), ["tensor"]))), state)] = x
    for name, x in {id(x): (name, x) for name, x in reversed(state.items())}.values():
        if x.grad is not None and any(variant.reads_gradient(x) for f in functions.values() for variant in f.variants):
            gradients[name] = x.grad
    return Model(functions, state, gradients)


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    found, k = name or "tensor", 1
    while found in taken or found == tensor_file.METADATA:
        found, k = f"{name}_{k}", k + 1
    return found


def _again(obj: LoadedModel | LoadedFunction) -> Model:
    """A model that was loaded, with its state as it is now."""
    if isinstance(obj, LoadedFunction):
        return _with_state({obj.function.name: obj.function}, [])
    model: Model = obj.model
    return Model(model.functions, model.state, _with_state(model.functions, [("", obj)]).gradients)
