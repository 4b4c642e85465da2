"""Tensors that a module holds and does not learn, as attributes: `self.mean = nn.Buffer(tn.zeros(3))`."""

from __future__ import annotations

from typing import Any

from tenon.tensor import Tensor, is_tensor, tensor


class Buffer(Tensor):
    """A tensor that a module holds as an attribute: `register_buffer` in one assignment.

    It is changed in place (`self.count += 1`, `self.mean.copy_(x)`): another tensor in its place is no buffer.
    `state_dict()` has it when `persistent`.

    >>> net = nn.Identity()
    >>> net.mean = nn.Buffer(tn.zeros(2))
    >>> list(net.state_dict())
    ['mean']
    """

    def __init__(self, data: Any, persistent: bool = True):
        super().__init__((data if is_tensor(data) else tensor(data)).detach().payload)
        self.persistent = persistent


def is_buffer(names: Any, name: str, x: Tensor) -> bool:
    """Whether a tensor that a module holds under this name is a buffer; `names` are those that were registered."""
    return name in names or isinstance(x, Buffer)
