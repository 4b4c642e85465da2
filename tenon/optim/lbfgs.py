"""L-BFGS: steps along a direction that the last few gradients suggest, for functions that are evaluated several times.

J. Nocedal, S. J. Wright, "Numerical optimization", chapters 3 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.eager.grad_mode import enable_grad, no_grad
from tenon.errors import ArgumentError
from tenon.optim.line_search import strong_wolfe
from tenon.optim.optimizer import Optimizer
from tenon.optim.pytorch_state import is_of_pytorch
from tenon.tensor import Tensor, tensor
from tenon.types import real_of

Vector = np.ndarray


class LBFGS(Optimizer):
    """The limited-memory method of Broyden, Fletcher, Goldfarb and Shanno, as in PyTorch.

    `step(closure)` calls `closure`, which forgets the gradients, calls `backward` and returns the loss, up to
    `max_eval` times.  `line_search_fn` is None (every step is `lr` long) or "strong_wolfe".  The decisions are made in
    Python, so a step is not captured; what the closure calls may be.

    >>> w = nn.Parameter([3.0, -1.0])
    >>> opt = optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = (w * w).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = opt.step(closure)
    >>> float((w * w).sum()) < 1e-6
    True
    """

    def __init__(self, params: Iterable[Any], lr: float = 1.0, max_iter: int = 20, max_eval: int | None = None,
                 tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None):
        super().__init__(params, lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                         tolerance_grad=tolerance_grad, tolerance_change=tolerance_change, history_size=history_size,
                         line_search_fn=line_search_fn)
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS: one group of parameters was expected, options of their own are not known")
        self._params: list[Tensor] = self.param_groups[0]["params"]
        self._history: list[tuple[Vector, Vector]] = []     # changes of the gradient and of the parameters
        self._scale = 1.0
        self._last: tuple[Vector, Vector, float] | None = None      # direction, gradient, step size

    def check(self, options: Mapping[str, Any]) -> None:
        if options["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError("LBFGS: line_search_fn must be None or 'strong_wolfe', not "
                                f"{options['line_search_fn']!r}")
        super().check({name: value for name, value in options.items() if name != "line_search_fn"})

    def state_dict(self) -> dict[str, Any]:
        """What other optimizers keep, and the last gradients and steps, from which the next direction follows."""
        history, last = self._history, self._last
        return super().state_dict() | {"memory": {
            "changes": [tensor(change) for change, _ in history], "moves": [tensor(moved) for _, moved in history],
            "last": [] if last is None else [tensor(last[0]), tensor(last[1])],
            "length": 0.0 if last is None else float(last[2]), "scale": float(self._scale)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; one without a memory begins anew along the gradient."""
        if is_of_pytorch(state):
            raise ArgumentError("LBFGS.load_state_dict: the memory of PyTorch's is not taken over",
                                hint="go on from the parameters; the memory is anew after a few steps")
        found = self._remembered(state.get("memory")) if isinstance(state, Mapping) else None
        super().load_state_dict(state)
        self._history, self._last, self._scale = found or ([], None, 1.0)

    def _remembered(self, memory: Any) -> Any:
        """(history, last step, scale) of a saved memory; raises ArgumentError for one that does not fit."""
        if memory is None:
            return None
        try:
            changes, moves, last = ([self._vector(x) for x in memory[key]] for key in ("changes", "moves", "last"))
            length, scale = float(memory["length"]), float(memory["scale"])
            history = list(zip(changes, moves, strict=True))
            step = (*last, length) if last else None
            if step is not None and len(step) != 3:
                raise ValueError(f"{len(last)} vectors of a last step")
        except (TypeError, KeyError, ValueError) as error:
            raise ArgumentError(f"LBFGS.load_state_dict: its memory was expected, not {memory!r:.80}",
                                why=str(error)) from None
        return history, step, scale

    def _vector(self, x: Any) -> Vector:
        found = np.asarray(x)
        count = sum(map(_count, self._params))
        if found.shape != (count,) or found.dtype.kind != "f":
            raise ValueError(f"{found.dtype}{list(found.shape)} for {count} elements of parameters")
        return found.copy()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Up to `max_iter` steps; returns the loss before them."""
        if closure is None:
            raise ArgumentError("LBFGS: step needs a closure that returns the loss", hint="opt.step(closure)")
        options = self.param_groups[0]
        evaluated, loss, gradient = self._evaluated(closure)
        before, evaluations = evaluated, 1
        if np.abs(gradient).max(initial=0.0) <= options["tolerance_grad"]:
            return before
        for left in reversed(range(options["max_iter"])):
            direction, rate = self._direction(gradient, options)
            slope = float(gradient @ direction)
            if slope > -options["tolerance_change"]:
                break
            old, start = loss, self._values()
            if options["line_search_fn"] is None:
                self._assign(start + rate * direction)
                if not left:        # what comes after the last step is evaluated by the next call
                    self._last = direction, gradient, rate
                    break
                _, loss, new = self._evaluated(closure)
                evaluations += 1
            else:
                def along(t: float, start: Vector = start, direction: Vector = direction) -> tuple[float, Vector]:
                    self._assign(start + t * direction)
                    return self._evaluated(closure)[1:]
                loss, new, rate, count = strong_wolfe(along, rate, direction, loss, gradient, slope,
                                                    options["max_eval"] - evaluations)
                self._assign(start + rate * direction)
                evaluations += count
            self._last, gradient = (direction, gradient, rate), new
            moved = np.abs(rate * direction).max(initial=0.0)
            if (evaluations >= options["max_eval"] or np.abs(gradient).max(initial=0.0) <= options["tolerance_grad"]
                    or moved <= options["tolerance_change"] or abs(loss - old) < options["tolerance_change"]):
                break
        return before

    def _direction(self, gradient: Vector, options: Any) -> tuple[Vector, float]:
        """Where to go from here, and how far at first."""
        rate = float(options["lr"])
        with no_grad():
            options.held("step").assign(options["step"] + 1)
        if self._last is None:
            return -gradient, min(1.0, 1.0 / float(np.abs(gradient).sum())) * rate
        direction, before, length = self._last
        change, moved = gradient - before, direction * length
        curvature = float(change @ moved)
        if curvature > 1e-10:
            self._history = [*self._history, (change, moved)][-options["history_size"]:]
            self._scale = curvature / float(change @ change)
        return self._two_loops(gradient), rate

    def _two_loops(self, gradient: Vector) -> Vector:
        """Minus the gradient times the inverse Hessian that the history suggests."""
        q, kept = -gradient, []
        for change, moved in reversed(self._history):
            share = float(moved @ q) / float(change @ moved)
            kept.append(share)
            q = q - share * change
        q = q * self._scale
        for (change, moved), share in zip(self._history, reversed(kept), strict=True):
            q = q + moved * (share - float(change @ q) / float(change @ moved))
        return q

    def _evaluated(self, closure: Callable[[], Any]) -> tuple[Any, float, Vector]:
        """The loss, as it is and as a number, and the gradient."""
        with enable_grad():
            loss = closure()
        parts = [np.zeros(_count(p)) if p.grad is None else _numbers(p.grad) for p in self._params]
        return loss, float(loss), np.concatenate(parts).astype(self._values().dtype, copy=False)

    def _values(self) -> Vector:
        return np.concatenate([_numbers(p.detach()) for p in self._params])

    def _assign(self, values: Vector) -> None:
        at = 0
        with no_grad():
            for p in self._params:
                part = values[at:at + _count(p)].astype(real_of(p.dtype).numpy)
                p.assign(tensor(part.view(p.dtype.numpy).reshape(p.shape)))
                at += _count(p)


def _numbers(x: Tensor) -> Vector:
    """The elements one behind the other; of complex ones the real and the imaginary part, as in PyTorch."""
    return np.ascontiguousarray(x.numpy()).ravel().view(real_of(x.dtype).numpy)


def _count(x: Tensor) -> int:
    return int(product(x.shape)) * (2 if x.dtype.is_complex else 1)
