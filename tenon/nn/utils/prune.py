"""Pruning: elements of a parameter are 0 by a mask, chosen by size or at random (Han 2015; Li 2017 for whole channels).

    prune.l1_unstructured(layer, "weight", amount=0.3)      # layer.weight is layer.weight_orig * layer.weight_mask

The parameter is `weight_orig` and the mask a buffer `weight_mask`, PyTorch's names; pruned again, what is left is
pruned.  `remove` makes the pruned values the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.nn.module import Module, Parameter
from tenon.nn.utils.parametrize import computed, restored
from tenon.ops.comparison import where
from tenon.ops.creation import ones_like, zeros_like
from tenon.ops.joining_and_axes import concat
from tenon.random import rand_like
from tenon.tensor import Tensor

__all__ = ["BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "RandomStructured",
           "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured",
           "ln_structured", "random_structured", "random_unstructured", "remove"]


class BasePruningMethod:
    """A way to choose elements: a subclass defines `compute_mask(t, default_mask)`, ones where `t` stays.

    What was pruned before, it does not see: for "unstructured" ones `t` is a vector of what is left, for "structured"
    ones the channels that are left along `dim`, for "global" ones all.
    """

    PRUNING_TYPE: ClassVar[str] = "unstructured"
    dim = 0

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Ones where an element stays; a subclass has one."""
        raise ArgumentError(f"{type(self).__name__} defines no compute_mask")

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **options: Any) -> Any:
        """Prune a parameter by `cls(*args, **options)`, which is returned; `importance_scores` stand for its values."""
        method = cls(*args, **options)
        value = getattr(module, name, None)
        if not isinstance(value, Tensor):
            raise ArgumentError(f"prune: {type(module).__name__} has no tensor {name!r}")
        with no_grad():
            mask = _next_mask(method, value.detach() if importance_scores is None else importance_scores,
                              _mask_of(module, name))
        if f"{name}_mask" in vars(module):
            vars(module)[f"{name}_mask"].assign(mask)
            return method
        delattr(module, name)
        setattr(module, f"{name}_orig", value)
        module.register_buffer(f"{name}_mask", mask)
        computed(module, name, lambda self: getattr(self, f"{name}_orig") * getattr(self, f"{name}_mask"))
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A tensor with 0 in the place of what is pruned of it."""
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, ones_like(t) if default_mask is None else default_mask)


def _mask_of(module: Module, name: str) -> Any:
    mask = vars(module).get(f"{name}_mask")
    return ones_like(getattr(module, name).detach()) if mask is None else mask.clone()


def _next_mask(method: BasePruningMethod, t: Any, mask: Any) -> Any:
    """A mask, less what the method prunes of what it leaves."""
    if method.PRUNING_TYPE == "global":
        return method.compute_mask(t, mask)
    left: Any = mask == 1
    if method.PRUNING_TYPE == "structured":
        other = tuple(k for k in range(t.ndim) if k != method.dim % t.ndim)
        left = (*[slice(None)] * (method.dim % t.ndim), mask.sum(axis=other) != 0)
    new = mask.clone()
    new[left] = method.compute_mask(t[left], mask[left]).to(mask.dtype)
    return new


def _count(amount: float, size: int) -> int:
    """How many of `size` an amount is: a share, or a number."""
    if not isinstance(amount, (int, float)) or amount < 0 or amount > (size if isinstance(amount, int) else 1):
        raise ArgumentError(f"prune: amount is a share from 0 to 1, or a number up to {size}, not {amount!r}")
    return amount if isinstance(amount, int) else round(amount * size)


def _without_least(mask: Any, scores: Any, count: int) -> Any:
    """A mask, less the elements of the least scores."""
    gone = zeros_like(scores.reshape(-1))
    gone[scores.reshape(-1).argsort()[:count]] = 1
    return where(gone.reshape(mask.shape) == 1, 0, mask)


class KeepAll(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask


Identity = KeepAll


class _Unstructured(BasePruningMethod):
    def __init__(self, amount: float):
        self.amount = amount

    def scores(self, t: Any) -> Any:
        return abs(t)

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return _without_least(default_mask, self.scores(t), _count(self.amount, t.numel()))


class L1Unstructured(_Unstructured):
    """Prunes the smallest elements."""


class RandomUnstructured(_Unstructured):
    """Prunes elements at random."""

    def scores(self, t: Any) -> Any:
        return rand_like(t)


class _Structured(BasePruningMethod):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any = 2, dim: int = -1):
        self.amount, self.n, self.dim = amount, n, dim

    def scores(self, t: Any) -> Any:
        return t.norm(self.n, tuple(k for k in range(t.ndim) if k != self.dim % t.ndim))

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        scores = self.scores(t)
        stays = _without_least(ones_like(scores), scores, _count(self.amount, scores.numel()))
        return default_mask * stays.reshape([-1 if k == self.dim % t.ndim else 1 for k in range(t.ndim)])


class LnStructured(_Structured):
    """Prunes the channels along `dim` whose norms of order `n` are smallest."""


class RandomStructured(_Structured):
    """Prunes channels along `dim` at random."""

    def __init__(self, amount: float, dim: int = -1):
        super().__init__(amount, dim=dim)

    def scores(self, t: Any) -> Any:
        return rand_like(super().scores(t))


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any):
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask * self.mask.to(default_mask.dtype)


# ---------------------------------------------------------------- functions

def identity(module: Module, name: str) -> Module:
    """Prune nothing, but have a mask; returns the module."""
    KeepAll.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune a share, or a number, of elements at random; returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Any = None) -> Module:
    """Prune a share, or a number, of elements: the smallest; returns the module.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(3, 2), "weight", amount=2)
    >>> int((layer.weight == 0).sum()), sorted(layer.state_dict())
    (2, ['bias', 'weight_mask', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels along an axis at random; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Any = None) -> Module:
    """Prune the channels along an axis whose norms are smallest; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Prune where a mask is 0; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
                        importance_scores: Any = None, **options: Any) -> None:
    """Prune parameters, (module, name) each, as if they were one vector."""
    listed, given = list(parameters), importance_scores or {}
    masks = [_mask_of(module, name) for module, name in listed]
    with no_grad():
        scores = [given.get((module, name), getattr(module, name)).detach().reshape(-1) for module, name in listed]
        mask = _next_mask(pruning_method(**options), concat(scores), concat([one.reshape(-1) for one in masks]))
    for (module, name), own, part in zip(listed, masks, mask.split_with_sizes([x.numel() for x in masks]), strict=True):
        custom_from_mask(module, name, part.reshape(own.shape))


def remove(module: Module, name: str) -> Module:
    """Let the pruned values be the parameter itself; returns the module."""
    if f"{name}_mask" not in vars(module):
        raise ArgumentError(f"prune.remove: {name!r} of {type(module).__name__} is not pruned")
    held: Parameter = getattr(module, f"{name}_orig")
    with no_grad():
        held.assign(getattr(module, name).detach())
    restored(module, name, held)
    delattr(module, f"{name}_orig")
    delattr(module, f"{name}_mask")
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below, is pruned."""
    return any(f"{name}_mask" in vars(below) for below in module.modules() for name in getattr(below, "_computed", ()))
