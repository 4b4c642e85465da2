"""Functions of functions: derivatives (`gradients`), batches (`batching`), recomputation and rules of one's own."""

from tenon.transforms.batching import vmap
from tenon.transforms.gradients import grad, jvp, value_and_grad, vjp

__all__ = ["grad", "jvp", "value_and_grad", "vjp", "vmap"]
