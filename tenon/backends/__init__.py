"""Loops -> something that runs.  One module a backend; nothing is imported before it is asked for.

PyTorch's switches for libraries of GPUs may be set here, as programs do: `torch.backends.cudnn.benchmark = True`.
"""


class _Library:
    """A library that is not there: it has no device, and what is set of it means nothing."""

    enabled = benchmark = deterministic = allow_tf32 = False

    @staticmethod
    def is_available() -> bool:
        """False."""
        return False

    is_built = is_available


cudnn, mps, cuda = _Library(), _Library(), _Library()
cuda.matmul = _Library()        # type: ignore[attr-defined]
