"""Tensors, modules and optimizers -> the same, in parts on the devices of a mesh.

    x = shard(x, mesh, ("data", None))                                  # a tensor: its rows over "data"
    net = shard(net, mesh, {r"up\\.weight": ("model", None), r"down\\.weight": (None, "model")})
    net = shard(net, mesh, plan="auto")                                 # as the first step that reads it runs soonest
    optimizer = shard(optimizer, mesh)                                  # state as the parameters are
    optimizer = shard(optimizer, mesh, "data")                          # and over "data" besides: ZeRO 1 and 2
    net = shard(net, mesh, "data")                                      # every parameter over "data": ZeRO 3
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.on_mesh import OnMesh
from tenon.errors import ArgumentError, CommunicationError, ShapeError
from tenon.graph.op import current
from tenon.nn.module import Module, Parameter
from tenon.ops.sharding_annotation import annotated
from tenon.optim.optimizer import Optimizer
from tenon.runtime.transports import transport_for
from tenon.sharding.awaiting_plan import await_plan
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharded_array import split_array
from tenon.sharding.sharding import Sharding, Spec, entry_axes
from tenon.tensor import Tensor, asarray
from tenon.tensor_state import TensorState, recorder

Rules = Mapping[str, Spec] | Sequence[tuple[str, Spec]]


def shard(x: Any, mesh: Mesh, spec: Any = (), *, plan: str | None = None) -> Any:
    """`x` in parts on the devices of a mesh.

    A tensor is split as `spec` says, one entry an axis: the name of a mesh axis, a tuple of names, or None; what is
    left out is None.  Within a compiled function this marks a value, whose gradient is split likewise.  Parts need not
    be even: the first have one element more, as those of `numpy.array_split`.

    For a module, `spec` holds rules: a pattern (of `re.fullmatch`) of parameter names and the spec of what it matches,
    the first that matches counts; what none matches stays whole.  The name of a mesh axis splits every parameter over
    that axis, along its first axis that is not split and long enough.  An optimizer's state is split as its parameters
    are, and over the mesh axis that is named besides.  Parameters, modules and optimizers are changed in place, and
    returned.

    With `plan="auto"` the first step on the mesh that reads the module says how: its graph is planned for this machine,
    then its weights are split with what an optimizer keeps of them, and rows of arguments over "data".

    Raises ArgumentError for axes that the mesh does not have and patterns that match nothing, ShapeError for a spec of
    more entries than axes.  GSPMD (Xu et al. 2021) has the annotations, ZeRO (Rajbhandari et al. 2020) its stages.

    >>> mesh = tn.distributed.Mesh({"data": 2})
    >>> x = tn.distributed.shard(tn.arange(6).reshape(3, 2), mesh, ("data", None))
    >>> x.payload.parts.shards[0]
    array([[0, 1],
           [2, 3]])
    """
    if not isinstance(mesh, Mesh):
        raise ArgumentError(f"shard: a mesh is expected, not {type(mesh).__name__}",
                            hint='tn.distributed.Mesh({"data": 2})')
    if plan is not None:
        return _left_to_plan(x, mesh, spec, plan)
    if isinstance(x, Module):
        return _sharded_module(x, mesh, spec)
    if isinstance(x, Optimizer):
        return _sharded_optimizer(x, mesh, spec)
    sharding, tensor = Sharding(mesh, spec), x if isinstance(x, Tensor) else asarray(x)
    axes = sharding.axes(tensor.ndim)       # raises where they are too many
    if recorder.get() is not None or current() is not None or _is_computed(tensor):
        marked: Tensor = annotated(tensor, tuple(zip(mesh.axes, mesh.shape, strict=True)), axes)
        return marked
    if isinstance(tensor, Parameter):
        split_in_place(tensor, sharding)
        return tensor
    return Tensor(_split(tensor, sharding), tensor.requires_grad)


def _left_to_plan(module: Any, mesh: Mesh, spec: Any, plan: str) -> Module:
    if plan != "auto" or spec != () or not isinstance(module, Module):
        given = f"plan={plan!r}" if plan != "auto" else "rules beside a plan" if spec != () else type(module).__name__
        raise ArgumentError(f'shard: plan="auto" says how a module is split that has no rules, and here is {given}',
                            hint='shard(net, mesh, plan="auto"); a Plan is for tn.jit(plan=)')
    await_plan(module.parameters(), mesh)
    return module


def _is_computed(tensor: Tensor) -> bool:
    """Whether a gradient goes through a tensor: on its way nothing is split in eager code."""
    return is_grad_enabled() and tensor.requires_grad and not tensor.is_leaf


def gather(x: Tensor) -> Tensor:
    """A tensor in parts, whole; with several processes, all of them have to call this."""
    payload = x.payload
    if not isinstance(payload, OnMesh):
        return x
    parts = payload.parts
    mesh, whole, at = parts.sharding.mesh, None, dict(parts.sharding.at)
    transport = transport_for(mesh)
    if parts.is_here and (not at or len(transport.ranks) == mesh.size):
        return Tensor(parts.full(), x.requires_grad)
    for rank, speaker in transport.begin().items():
        try:
            whole = parts.shards.get(rank)
            if at:
                own = np.empty(parts.sharding.local_shape(x.shape, rank), x.dtype.numpy) if whole is None else whole
                whole = speaker.broadcast(own, tuple(at), mesh.place(mesh.rank_at(at), tuple(at)))
            assert whole is not None, "a rank has its part"
            for axis, over in reversed(list(enumerate(parts.sharding.axes(x.ndim)))):
                if over:
                    whole = speaker.all_gather(whole, axis, over, x.shape[axis])
        finally:
            speaker.close()
    if whole is None:
        raise CommunicationError("gather: this process has no device of the mesh")
    return Tensor(whole, x.requires_grad)


def _split(tensor: Tensor, sharding: Sharding) -> Any:
    """The payload of a tensor split so: whole where nothing is split."""
    payload = tensor.payload
    if isinstance(payload, OnMesh) and payload.parts.sharding == sharding.with_entries(tensor.ndim):
        return payload
    array = tensor.numpy()
    if sharding.is_replicated:
        return array
    return OnMesh(split_array(array, sharding, transport_for(sharding.mesh).ranks))


def split_in_place(tensor: Tensor, sharding: Sharding) -> None:
    """Split a tensor so; it stays the same tensor."""
    state = tensor.state
    tensor.hold(TensorState(_split(tensor, sharding), state.requires_grad, state.grad, state.node, state.index))


def _sharded_module(module: Module, mesh: Mesh, rules: Any) -> Module:
    named = dict(module.named_parameters())
    if isinstance(rules, str):
        mesh.check_axes((rules,))
        for p in named.values():
            split_in_place(p, _besides(p, mesh, rules))
        return module
    for name, spec in _matched(named, rules).items():
        sharding = Sharding(mesh, spec)
        try:
            sharding.axes(named[name].ndim)
        except ShapeError as error:
            raise ShapeError(f"shard: {name} {named[name].type}: {error.what}", hint=error.hint) from None
        split_in_place(named[name], sharding)
    return module


def _matched(named: Mapping[str, Tensor], rules: Any) -> dict[str, Spec]:
    """The spec of every parameter that a rule matches."""
    pairs = list(rules.items() if isinstance(rules, Mapping) else rules)
    if not all(isinstance(rule, tuple) and len(rule) == 2 and isinstance(rule[0], str) for rule in pairs):
        raise ArgumentError(f"shard: rules are patterns of names with specs, not {rules!r}",
                            hint='{r".*weight": ("model", None)}; or the name of a mesh axis')
    found: dict[str, Spec] = {}
    for pattern, spec in pairs:
        try:
            matches = [name for name in named if re.fullmatch(pattern, name)]
        except re.error as error:
            raise ArgumentError(f"shard: {pattern!r} is no regular expression: {error}",
                                hint='r".*weight" matches all names that end so') from None
        if not matches:
            raise ArgumentError(f"shard: no parameter is called {pattern!r}",
                                hint=f"they are {', '.join(list(named)[:8])}{' ...' if len(named) > 8 else ''}")
        found.update({name: spec for name in matches if name not in found})
    return found


def _sharded_optimizer(optimizer: Optimizer, mesh: Mesh, axis: Any) -> Optimizer:
    if axis != () and not isinstance(axis, str):
        raise ArgumentError(f"shard: an optimizer's state is split as its parameters are, {axis!r} is no mesh axis",
                            hint='shard(optimizer, mesh), or shard(optimizer, mesh, "data")')
    mesh.check_axes((axis,) if axis else ())
    for group in optimizer.param_groups:
        for held in group.slots.values():
            for p, slot in zip(group["params"], held, strict=True):
                if slot.shape == p.shape:
                    split_in_place(slot, _besides(p, mesh, axis) if axis else _sharding_of(p, mesh))
    return optimizer


def _sharding_of(x: Tensor, mesh: Mesh) -> Sharding:
    payload = x.payload
    if not isinstance(payload, OnMesh):
        return Sharding(mesh)
    if payload.parts.sharding.mesh != mesh:
        raise ArgumentError(f"shard: a parameter is split over {payload.parts.sharding.mesh!r}, not {mesh!r}")
    return payload.parts.sharding


def _besides(x: Tensor, mesh: Mesh, axis: str) -> Sharding:
    """The sharding of a tensor, its first axis that is free and long enough split over one more mesh axis."""
    entries = [entry_axes(entry) for entry in _sharding_of(x, mesh).spec]
    spec = [*entries, *[()] * (x.ndim - len(entries))]
    if axis not in [name for entry in spec for name in entry]:
        free = next((k for k, n in enumerate(x.shape) if not spec[k] and n >= mesh.axis_size(axis)), None)
        if free is not None:
            spec[free] = (axis,)
    return Sharding(mesh, tuple(spec))
