"""Normalisation layers: BatchNorm1d/2d/3d, LayerNorm, RMSNorm, GroupNorm, InstanceNorm1d/2d/3d, LocalResponseNorm."""

from __future__ import annotations

from typing import Any

from tenon.errors import ShapeError
from tenon.nn import init
from tenon.nn.module import Module, Parameter
from tenon.ops import normalization as ops
from tenon.ops.creation import empty, ones, zeros
from tenon.types import int64

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
           "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _affine(module: Any, shape: Any, weight: bool, bias: bool, dtype: Any) -> None:
    """Weight and bias of this shape, 1 and 0, or None."""
    module.weight = init.ones_(Parameter(empty(shape, dtype=dtype))) if weight else None
    module.bias = init.zeros_(Parameter(empty(shape, dtype=dtype))) if bias else None


class _Affine(Module):
    """A layer that may scale and shift what it has normalised."""

    def reset_parameters(self) -> None:
        """Scale by 1 and shift by 0, as at first."""
        for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
            if (p := self.__dict__.get(name)) is not None:
                fill(p)


class _ChannelNorm(_Affine):
    """Normalises channel by channel, with running statistics if wanted."""

    axes: tuple[int, ...] = ()      # how many axes the input may have

    def __init__(self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
                 device: Any = None, dtype: Any = "float32", bias: bool = True):
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        _affine(self, num_features, affine, affine and bias, dtype)
        track = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype) if track else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype) if track else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=int64) if track else None)
        self._place(device)

    def reset_parameters(self) -> None:
        """Forget what was learned and what was seen."""
        super().reset_parameters()
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Forget what was seen in training."""
        if self.track_running_stats:
            init.zeros_(self.running_mean), init.ones_(self.running_var), init.zeros_(self.num_batches_tracked)

    def _check(self, x: Any) -> None:
        if x.ndim not in self.axes:
            wanted = " or ".join(map(str, self.axes))
            raise ShapeError(f"{type(self).__name__}: the input must have {wanted} axes, it is {x.type}")

    def extra_repr(self) -> str:
        return f"{self.num_features}" + ("" if self.weight is not None else ", affine=False")


class _BatchNorm(_ChannelNorm):
    """Mean 0 and variance 1 for every channel over the batch in training, over all batches seen in use.

    `momentum` is the share of a new batch in the running statistics; None averages all batches evenly.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = "float32", *, bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype, bias=bias)
        self._place(device)

    def forward(self, x: Any) -> Any:
        self._check(x)
        share: Any = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
            if self.momentum is None:
                share = 1 / self.num_batches_tracked.astype(self.running_mean.dtype)
        return ops.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                              self.training or not self.track_running_stats, share, self.eps)


class BatchNorm1d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
    axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
    axes = (4,)


class BatchNorm3d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
    axes = (5,)


class _InstanceNorm(_ChannelNorm):
    """Mean 0 and variance 1 for every channel of every item."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = "float32", *, bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype, bias=bias)
        self._place(device)

    def forward(self, x: Any) -> Any:
        self._check(x)
        alone = x.ndim == min(self.axes)
        from_input = self.training or not self.track_running_stats
        out = ops.instance_norm(x[None] if alone else x, self.running_mean, self.running_var, self.weight, self.bias,
                                from_input, self.momentum or 0.0, self.eps)
        return out[0] if alone else out


class InstanceNorm1d(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__
    axes = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__
    axes = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__
    axes = (4, 5)


class LayerNorm(_Affine):
    """Mean 0 and variance 1 over the last axes, which have the sizes `normalized_shape`; scaled and shifted.

    >>> nn.LayerNorm(2)(tn.tensor([1.0, 3.0]))
    tensor([-1.,  1.], requires_grad=True)
    """

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 device: Any = None, dtype: Any = "float32"):
        listed = isinstance(normalized_shape, (tuple, list))
        self.normalized_shape = tuple(normalized_shape) if listed else (normalized_shape,)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        _affine(self, self.normalized_shape, elementwise_affine, elementwise_affine and bias, dtype)
        self._place(device)

    def forward(self, x: Any) -> Any:
        return ops.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.normalized_shape))


class RMSNorm(_Affine):
    """Divided by the root of the mean square over the last axes, and scaled."""

    def __init__(self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
                 device: Any = None, dtype: Any = "float32"):
        listed = isinstance(normalized_shape, (tuple, list))
        self.normalized_shape = tuple(normalized_shape) if listed else (normalized_shape,)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = init.ones_(Parameter(empty(self.normalized_shape, dtype=dtype))) if elementwise_affine else None
        self._place(device)

    def forward(self, x: Any) -> Any:
        return ops.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.normalized_shape))


class GroupNorm(_Affine):
    """Mean 0 and variance 1 in each of `num_groups` groups of channels, scaled and shifted channel by channel."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 device: Any = None, dtype: Any = "float32", *, bias: bool = True):
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        _affine(self, num_channels, affine, affine and bias, dtype)
        self._place(device)

    def forward(self, x: Any) -> Any:
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}"


class LocalResponseNorm(Module):
    """x divided by (k + alpha * mean of the squares of `size` neighbouring channels) ** beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Any) -> Any:
        return ops.local_response_norm(x, size=self.size, alpha=self.alpha, beta=self.beta, k=self.k)

    def extra_repr(self) -> str:
        return f"{self.size}"
