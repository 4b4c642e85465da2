"""Modules: Python objects whose attributes are parameters, buffers and other modules.

    class Net(nn.Module):
        def __init__(self):
            self.hidden = nn.Linear(784, 512)
        def __call__(self, x):
            return tn.relu(self.hidden(x))

Nothing is registered: parameters and modules are found among the attributes, also inside lists, tuples and dicts,
so `super().__init__()` is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tenon.devices import HOST, among
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError, DTypeError, NameTaken, TenonError
from tenon.graph.argument_errors import refuse_misspelt
from tenon.migration_hints import MODULE, Absent, present
from tenon.nn.buffer import Buffer, is_buffer
from tenon.nn.describe import as_html, as_text
from tenon.nn.hooks import (
    AFTER,
    AFTER_ALL,
    AFTER_LOADING,
    BEFORE,
    BEFORE_ALL,
    BEFORE_LOADING,
    GRADIENT_IN,
    GRADIENT_OUT,
    OF_THE_STATE,
    HookHandle,
    added_hook,
    called_with_hooks,
)
from tenon.nn.member_dicts import MembersByName
from tenon.nn.state_dict_hooks import changed_state, changed_state_to_load, hooks_before_loading
from tenon.tensor import Tensor, is_tensor, tensor, told
from tenon.types import DType

M = TypeVar("M", bound="Module")
X = TypeVar("X")


class DifferingKeys(NamedTuple):
    """The names of a module that a state lacks, and those of a state that the module has not."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={keys}" for name, keys in zip(self._fields, self, strict=True))
        return f"DifferingKeys({named})" if any(self) else "<All keys matched successfully>"


class Parameter(Tensor):
    """A tensor that a module learns: it requires a gradient, and `Module.parameters()` finds it.

    It takes attributes of the user's, such as `weight.no_decay = True`, which say how it is to be treated.

    >>> nn.Parameter([1.0, 2.0])
    Parameter([1., 2.])
    """

    def __init__(self, data: Any, requires_grad: bool = True):
        source = data if is_tensor(data) else tensor(data)
        if requires_grad and not source.dtype.is_differentiable:
            raise DTypeError(f"a parameter needs floating or complex elements, not {source.dtype.name}",
                             hint="cast it, or pass requires_grad=False")
        super().__init__(source.payload)
        if requires_grad:
            self.requires_grad = True

    def __repr__(self) -> str:
        return super().__repr__().replace("tensor(", "Parameter(", 1).replace(", requires_grad=True", "")


def state_tensor(value: Any, held: Tensor) -> Tensor | None:
    """The tensor that a state holds for `held`; None where it does not fit there."""
    try:
        found = value if isinstance(value, Tensor) else tensor(value)
    except TenonError:
        return None
    if found.shape != held.shape or not promotes(found.dtype, held.dtype):
        return None
    return found


def promotes(given: DType, held: DType) -> bool:
    """Whether numbers of one type may be kept in another, in which they may lose digits but no part of them."""
    return given is held or (given.kind != "c" and held.kind != "b") or held.kind == "c"


def shown_value(value: Any) -> str:
    """What stands in a state where a tensor was expected."""
    return str(value.type) if isinstance(value, Tensor) else f"a {type(value).__name__}"


class Module:
    """Base of all layers and models.

    Assign parameters (`nn.Parameter`), buffers (`register_buffer`) and modules as attributes, and define `__call__`
    or `forward`.

    >>> layer = nn.Linear(3, 2)
    >>> [(name, p.shape) for name, p in layer.named_parameters()]
    [('weight', (2, 3)), ('bias', (2,))]
    """

    # _seen is the type of the last result of forward, for the repr; outside __dict__, so that no capture depends on it.
    __slots__ = ("__dict__", "__weakref__", "_seen")
    uninitialized = False           # whether it has its parameters after its first call only
    training: bool
    _persistent: Mapping[str, bool]     # name of a buffer -> whether state_dict() holds it

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __dir__(self) -> list[str]:
        return present(self, super().__dir__())

    def __new__(cls, *_: Any, **options: Any) -> Any:
        """What __init__ need not set up, so that subclasses need not call it."""
        if options:
            refuse_misspelt(cls, options)
        module = object.__new__(cls)
        module.__dict__.update(training=True, _persistent={})
        return module

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the name of a parameter takes another one or None, since an optimizer goes on with it.

        Raises ArgumentError for anything else there: `w.data = x` and `w.assign(x)` give it other elements.
        """
        if isinstance(self.__dict__.get(name), Parameter) and not isinstance(value, (Parameter, NoneType)):
            raise ArgumentError(f"{type(self).__name__}.{name} is a parameter, which {_called(value)} cannot replace",
                                hint=f"net.{name}.data = x, net.{name} = nn.Parameter(x), or del net.{name} first")
        object.__setattr__(self, name, value)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if options and "input" in options and type(self).__module__.startswith("tenon.nn"):     # layer(input=x)
            inputs, options = (options["input"], *inputs), {name: x for name, x in options.items() if name != "input"}
        hooks = self.__dict__.get("_hooks")
        out = self.forward(*inputs, **options) if not hooks else called_with_hooks(self, hooks, inputs, options)
        if isinstance(out, Tensor):
            object.__setattr__(self, "_seen", out.type)
        return out

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The module's function; a subclass defines it, or `__call__`."""
        raise ArgumentError(f"{type(self).__name__} defines neither __call__ nor forward")

    # ------------------------------------------------------------ hooks

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> HookHandle:
        """Call `hook(module, inputs)` before every call; what it returns, if anything, replaces the inputs.

        `with_kwargs`: `hook(module, inputs, keywords)`, which returns a pair of them.  `prepend`: before other hooks.
        Returns a handle whose `remove()` takes it away.  Raises ArgumentError for a module that defines `__call__`.
        """
        return added_hook(self, BEFORE_ALL if with_kwargs else BEFORE, hook, prepend)

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                              with_kwargs: bool = False) -> HookHandle:
        """Call `hook(module, inputs, output)` after every call; what it returns, if anything, replaces the output.

        `with_kwargs`: `hook(module, inputs, keywords, output)`.  `prepend`: before other hooks.

        >>> layer, sizes = nn.Linear(3, 2), []
        >>> handle = layer.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape))
        >>> _ = layer(tn.ones(4, 3))
        >>> sizes
        [(4, 2)]
        """
        return added_hook(self, AFTER_ALL if with_kwargs else AFTER, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, gradients of inputs, gradients of outputs)` when they are known.

        Tuples of tensors, None where there is no gradient; what it returns, if anything, replaces those of the inputs.

        >>> layer, norms = nn.Linear(3, 2), []
        >>> handle = layer.register_full_backward_hook(lambda module, gi, go: norms.append(go[0].norm().item()))
        >>> layer(tn.ones(1, 3)).sum().backward()
        >>> len(norms)
        1
        """
        return added_hook(self, GRADIENT_IN, hook)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, gradients of outputs)` when they are known; what it returns replaces them."""
        return added_hook(self, GRADIENT_OUT, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, state, prefix, {})` when `state_dict` has the state, which it may change."""
        return added_hook(self, OF_THE_STATE, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call a hook before a state is taken, a copy of which it may change: names of older files, say.

        `hook(module, state, prefix, {}, strict, missing names, unexpected names, errors)`.
        """
        return added_hook(self, BEFORE_LOADING, hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> HookHandle:
        """The same, of older programs: the hook is not given the module unless told."""
        return added_hook(self, BEFORE_LOADING, hook if with_module else lambda module, *given: hook(*given))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, (missing names, unexpected names))` when a state was taken; it may change the lists."""
        return added_hook(self, AFTER_LOADING, hook)

    # ------------------------------------------------------------ what it holds

    def add_module(self, name: str, module: Module | None) -> None:
        """Set an attribute to a module; of a Sequential, ModuleList or ModuleDict, one of its items."""
        setattr(self, name, module)

    register_module = add_module

    def get_submodule(self, target: str) -> Module:
        """The module of this name, `blocks.0.attention`; the name "" is this one."""
        return _named(self, "module", dict(self.named_modules()), target)

    def get_parameter(self, target: str) -> Tensor:
        """The parameter of this name, `blocks.0.weight`."""
        return _named(self, "parameter", dict(self.named_parameters()), target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of this name."""
        return _named(self, "buffer", dict(self.named_buffers()), target)

    def set_submodule(self, target: str, module: Module) -> None:
        """Put a module in the place of the one of this name."""
        above, _, name = target.rpartition(".")
        self.get_submodule(above).add_module(name, module)

    @property
    def _modules(self) -> MutableMapping[str, Any]:
        """The modules directly below by name, to read and to change, as PyTorch has them."""
        return MembersByName(self, lambda name, x: isinstance(x, Module), self.add_module)

    @property
    def _parameters(self) -> MutableMapping[str, Any]:
        """The parameters of this module itself by name."""
        return MembersByName(self, lambda name, x: isinstance(x, Parameter), self.register_parameter)

    @property
    def _buffers(self) -> MutableMapping[str, Any]:
        """The buffers of this module itself by name."""
        return MembersByName(self, lambda name, x: is_buffer(self._persistent, name, x), self.register_buffer)

    def _members(self) -> Iterator[tuple[str, Any]]:
        """Every tensor and module among the attributes, by its name: `weight`, `blocks.0`."""
        return _tensors_and_modules("", self.__dict__)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below this one."""
        return _once((name, x) for name, x in self._members() if isinstance(x, Module))

    def children(self) -> Iterator[Module]:
        """The modules directly below this one."""
        return (child for _, child in self.named_children())

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module and all below, each once (unless told)."""
        every = _tree(self, prefix, ())
        return _once(every) if remove_duplicate else every

    def modules(self) -> Iterator[Module]:
        """This module and all below, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Names and parameters, each once (unless told), those of this module first."""
        every = _own(_tree(self, prefix, ()) if recurse else [(prefix, self)],
                     lambda module, name, x: isinstance(x, Parameter))
        return _once(every) if remove_duplicate else every

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Names and buffers, each once."""
        return _once(_own(_tree(self, prefix, ()) if recurse else [(prefix, self)],
                          lambda module, name, x: is_buffer(module._persistent, name, x)))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (x for _, x in self.named_buffers(recurse=recurse))

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Hold a tensor that is no parameter; `state_dict()` has it when `persistent`.

        Raises NameTaken for the name of a parameter, a module or another attribute.
        """
        if name not in self._persistent and hasattr(self, name):
            raise NameTaken(f"{type(self).__name__}.register_buffer: the module has an attribute {name!r} already",
                            hint=f"del net.{name} first, or take another name")
        self.__dict__["_persistent"] = {**self._persistent, name: persistent}
        setattr(self, name, value)

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """The same as assigning the attribute."""
        setattr(self, name, value)

    # ------------------------------------------------------------ state

    def _state(self) -> dict[str, Tensor]:
        """Every parameter and persistent buffer by its full name: the tensors themselves."""
        return dict(_own(_tree(self, "", ()), _is_kept))

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """The values of every parameter and persistent buffer by full name, as tensors that no longer change.

        One of them that is changed in place changes the module too, as in PyTorch; a copy does not (`copy.deepcopy`).
        A module that has a method `get_extra_state` adds what it gives.  `keep_vars` gives the tensors themselves.

        >>> list(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).state_dict())
        ['0.weight', '0.bias']
        """
        state = {prefix + name: x if keep_vars else x.data for name, x in self._state().items()}
        return changed_state(state, list(_tree(self, "", ())), prefix)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, assign: bool = False) -> DifferingKeys:
        """Take over values by name; returns the names that were missing and the names that were unexpected.

        Modules may rename entries of a copy first, by hooks or a `_load_from_state_dict` of their own.  With `assign`
        parameters get the element types of the state.  Raises ArgumentError, and changes nothing, if a value is no
        tensor of the shape and a kind of numbers that fit or, when `strict`, if the names differ.
        """
        if not isinstance(state, Mapping):
            raise ArgumentError(f"{type(self).__name__}.load_state_dict: a state is a dictionary of tensors, not "
                                f"{type(state).__name__}", hint="net.load_state_dict(tn.load(path))")
        own = self._state()
        loading = changed_state_to_load(list(_tree(self, "", ())), state, own, strict)
        values = {name: state_tensor(loading.state[name], own[name]) for name in own if name in loading.state}
        wrong = [f"{name} is {own[name].type} here and {shown_value(loading.state[name])} in the state"
                 for name, x in values.items() if x is None]
        rows = [*loading.errors, *(f"wrong shape: {row}" for row in wrong)]
        if not loading.has_hooks_after or rows:
            self._refuse([*loading.differing(strict), *rows], bool(wrong))
        with no_grad():
            for name, x in values.items():
                if assign and x is not None:
                    own[name]._rebind(x.clone())
                else:
                    own[name].assign(x)
        keys = DifferingKeys(loading.missing, loading.unexpected)
        loading.finish(keys)
        self._refuse(loading.differing(strict), False)
        return keys

    def _refuse(self, rows: list[str], is_wrong: bool) -> None:
        if rows:
            raise ArgumentError("\n  ".join([f"{type(self).__name__}.load_state_dict: the state does not fit", *rows]),
                                hint="strict=False takes what fits by name" if not is_wrong else None)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        """Called for each module before a state is taken; a subclass may change `state_dict` and call this one."""
        hooks_before_loading(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                             error_msgs)
        missing_keys += [name for name in dict(_own([(prefix[:-1], self)], _is_kept)) if name not in state_dict]

    # ------------------------------------------------------------ changes

    def train(self: M, mode: bool = True) -> M:
        """Let dropout and batch normalisation behave as in training; returns the module."""
        for module in self.modules():
            if module.training != mode:
                module.training = mode
        return self

    def eval(self: M) -> M:
        """Let dropout and batch normalisation behave as in use; returns the module."""
        return self.train(False)

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call `fn` on every module, children first; returns the module."""
        for module in reversed(list(self.modules())):
            fn(module)
        return self

    def to(self: M, *given: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False,
           memory_format: Any = None) -> M:
        """Bring parameters and buffers to a device, and floating ones to another type, in place; returns the module.

        A tensor stands for its type and device.  Gradients come along, and what an optimizer keeps of a parameter at
        its next step.  `non_blocking` and `memory_format` mean nothing here.
        """
        wanted, where = among(*told(given), dtype, device)
        modules = dict(_tree(self, "", ()))
        for module in modules.values():
            if module.uninitialized:
                module.brought.append((where, wanted))
        own = _own(((name, x) for name, x in modules.items() if not x.uninitialized),
                   lambda module, name, x: isinstance(x, Parameter) or is_buffer(module._persistent, name, x))
        with no_grad():
            for _, x in _once(own):
                converted = None if wanted is None or not x.dtype.is_differentiable else wanted
                new = x.detach().to(where, converted)
                if new.dtype is not x.dtype or new.device is not x.device:
                    gradient = x.grad
                    x._rebind(new)
                    x.grad = None if gradient is None else gradient.to(where, converted)
        return self

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """`to(device)`."""
        return self.to(device)

    def _place(self, device: Any) -> None:
        """Bring a new layer to the device that it was told."""
        if device is not None:
            self.to(device=device)

    def type(self: M, dst_type: Any) -> M:
        """`to(dtype)`."""
        return self.to(dtype=dst_type)

    def cpu(self: M) -> M:
        """`to("cpu")`."""
        return self.to(HOST)

    def float(self: M) -> M:
        """`to(float32)`."""
        return self.to("float32")

    def double(self: M) -> M:
        """`to(float64)`."""
        return self.to("float64")

    def half(self: M) -> M:
        """`to(float16)`."""
        return self.to("float16")

    def bfloat16(self: M) -> M:
        """`to(bfloat16)`."""
        return self.to("bfloat16")

    def requires_grad_(self: M, flag: bool = True) -> M:
        """Set `requires_grad` of every parameter; returns the module."""
        for p in self.parameters():
            p.requires_grad = flag
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else p.grad * 0

    # ------------------------------------------------------------ how it reads

    def extra_repr(self) -> str:
        """What stands in the brackets after the class: sizes and options."""
        return ""

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _called(value: Any) -> str:
    return f"a plain tensor {value.type}" if isinstance(value, Tensor) else f"an object of type {type(value).__name__}"


def _tensors_and_modules(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Tensor, Module)):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, x in items:
            if isinstance(x, (Tensor, Module, list, tuple, dict)):
                yield from _tensors_and_modules(f"{name}.{key}" if name else str(key), x)


def _tree(module: Module, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, Module]]:
    yield name, module
    for key, child in module._members():
        if isinstance(child, Module) and id(child) not in above:
            yield from _tree(child, f"{name}.{key}" if name else key, (*above, id(module)))


def _is_kept(module: Module, name: str, x: Tensor) -> bool:
    return isinstance(x, Parameter) or module._persistent.get(name, isinstance(x, Buffer) and x.persistent)


def _own(tree: Any, chosen: Callable[[Module, str, Any], bool]) -> Iterator[tuple[str, Any]]:
    for prefix, module in tree:
        if module.uninitialized:
            raise ArgumentError(f"{type(module).__name__} {prefix!r} has no parameters before its first call",
                                hint="call the net once with data of the right sizes")
        for name, x in module._members():
            if isinstance(x, Tensor) and chosen(module, name, x):
                yield f"{prefix}.{name}" if prefix else name, x


def _named(module: Module, what: str, found: dict[str, X], name: str) -> X:
    if name not in found:
        raise ArgumentError(f"{type(module).__name__} has no {what} {name!r}",
                            hint=f"it has {', '.join(list(found)[:8])}")
    return found[name]


def _once(items: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, x in items:
        if id(x) not in seen:
            seen.add(id(x))
            yield name, x


for _name, _hint in MODULE.items():
    setattr(Module, _name, Absent(_name, _hint))
