"""`tn.func`: functions of functions by the names of `torch.func`, and modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from tenon import transforms
from tenon.errors import ArgumentError
from tenon.graph.synonyms import also_named
from tenon.nn.module import Module
from tenon.ops.joining_and_axes import stack
from tenon.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state",
           "vjp", "vmap"]


def functional_call(module: Module, parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
                    args: Any = (), kwargs: Mapping[str, Any] | None = None, *, tie_weights: bool = True,
                    strict: bool = False) -> Any:
    """What the module returns with these tensors in place of its parameters and buffers of the same names.

    They are a dictionary, or several.  `args` is a tuple of arguments, or one.  The module is as before afterwards,
    whatever happens.  A tensor that stands at several places of the module is replaced at all of them, unless
    `tie_weights=False`.  Raises ArgumentError for a name that the module does not have, and with `strict` for one that
    was not given.

    >>> net = tn.nn.Linear(2, 1)
    >>> zeros = {name: tn.zeros_like(p) for name, p in net.named_parameters()}
    >>> tn.func.functional_call(net, zeros, tn.ones(1, 2)).tolist()
    [[0.0]]
    """
    given = parameter_and_buffer_dicts
    parts = [given] if isinstance(given, Mapping) else given
    tensors = {name: x for part in parts for name, x in part.items()}
    known = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    if missing := next((name for name in tensors if name not in known), None):
        raise ArgumentError(f"functional_call: {type(module).__name__} has no parameter or buffer {missing!r}",
                            hint=f"it has {', '.join(sorted(known)[:8])}")
    if tie_weights:
        same = {id(known[name]): x for name, x in tensors.items()}
        tensors = {name: same[id(x)] for name, x in known.items() if id(x) in same} | tensors
    if strict and len(tensors) < len(known):
        raise ArgumentError(f"functional_call: no {sorted(known.keys() - tensors.keys())[0]!r} was given")
    with _replaced(module, tensors):
        return module(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))


@contextmanager
def _replaced(module: Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """The module with other tensors, for a block."""
    places = [(module.get_submodule(path), leaf, x) for name, x in tensors.items()
              for path, _, leaf in [name.rpartition(".")]]
    before = [getattr(owner, leaf) for owner, leaf, _ in places]
    try:
        for owner, leaf, x in places:
            object.__setattr__(owner, leaf, x)
        yield
    finally:
        for (owner, leaf, _), x in zip(places, before, strict=True):
            object.__setattr__(owner, leaf, x)


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """`tn.vmap`, with PyTorch's names of its arguments.

    >>> tn.func.vmap(lambda x, y: x @ y, in_dims=(0, None))(tn.ones(3, 2), tn.ones(2)).tolist()
    [2.0, 2.0, 2.0]
    """
    return transforms.vmap(func, in_dims, out_dims, randomness=randomness)


OF_ORDER = ("chunk_size", "randomness", "_preallocate_and_copy")      # how PyTorch goes about it


def _named_as_there(transform: F) -> F:
    """With `func` for the function, and without what says only in which order PyTorch goes about it."""
    @wraps(transform)
    def called(*args: Any, **named: Any) -> Any:
        return transform(*args, **{name: x for name, x in named.items() if name not in OF_ORDER})
    return also_named(func="f")(cast(F, called))


grad, hessian = _named_as_there(transforms.grad), _named_as_there(transforms.hessian)
jacfwd, jacrev = _named_as_there(transforms.jacfwd), _named_as_there(transforms.jacrev)
jvp, vjp = _named_as_there(transforms.jvp), _named_as_there(transforms.vjp)


@_named_as_there
def grad_and_value(f: Callable[..., Any], argnums: int | Sequence[int] = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns the gradient of the scalar `f`, and its value: `tn.value_and_grad` turned round.

    >>> tn.func.grad_and_value(lambda x: x * x)(3.0)
    (tensor(6.), tensor(9.))
    """
    found = transforms.value_and_grad(f, argnums, has_aux)

    def gradient_and_value(*args: Any, **keywords: Any) -> tuple[Any, Any]:
        value, gradient = found(*args, **keywords)
        return gradient, value
    return gradient_and_value


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules of equal structure, each stacked along a new first axis, by name.

    With `vmap` over `functional_call` they are an ensemble.  Raises ArgumentError without modules.

    >>> nets = [tn.nn.Linear(2, 1) for _ in range(3)]
    >>> params, buffers = tn.func.stack_module_state(nets)
    >>> call = tn.func.vmap(lambda p, x: tn.func.functional_call(nets[0], p, x), in_dims=(0, None))
    >>> call(params, tn.ones(4, 2)).shape
    (3, 4, 1)
    """
    if not models:
        raise ArgumentError("stack_module_state takes a list of modules, and got none")
    return (_stacked([dict(x.named_parameters()) for x in models]), _stacked([dict(x.named_buffers()) for x in models]))


def _stacked(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    if any(state.keys() != states[0].keys() for state in states):
        raise ArgumentError("stack_module_state: the modules have parameters of other names")
    return {name: stack([state[name] for state in states]) for name in states[0]}
