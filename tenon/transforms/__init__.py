"""Functions of functions: derivatives (`gradients`, `jacobians`), batches (`vmap_interpreter`), recomputation
(`checkpoint`) and rules of one's own (`custom_gradient`)."""

from tenon.transforms import pytrees as tree
from tenon.transforms.checkpoint import checkpoint
from tenon.transforms.custom_gradient import custom_vjp
from tenon.transforms.gradients import grad, jvp, value_and_grad, vjp
from tenon.transforms.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from tenon.transforms.vmap_interpreter import vmap

__all__ = ["checkpoint", "custom_vjp", "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp",
           "tree", "value_and_grad", "vjp", "vmap"]
