"""`torch.compile(model, backend="tenon")`: PyTorch captures and differentiates, Tenon compiles and runs.

AOTAutograd turns what Dynamo captured into a forward and a backward graph of ATen operators, in which tensors change
only at the end; each becomes a `FxProgram`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd

from tenon.errors import ArgumentError
from tenon.graph.ir import AUTOTUNE, MEMORY_BUDGET
from tenon.torch.aten_foreach import LIST_OPERATORS
from tenon.torch.aten_random import DRAWING
from tenon.torch.fast_paths import FAST_PATHS
from tenon.torch.fx_program import FxProgram

aten = torch.ops.aten

# PyTorch's own definitions of these give other numbers than its kernels, or hide what Tenon has an operator for.
KEPT = (aten.bernoulli.p, aten.bernoulli.default, aten._scaled_dot_product_flash_attention_for_cpu.default)

OPTIONS = {"memory_budget": MEMORY_BUDGET, "autotune": AUTOTUNE}

_numbers = count()


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What is taken apart before Tenon sees it: all that is not core ATen, but for what is kept whole."""
    table = dict(core_aten_decompositions())
    for operator in KEPT:
        table.pop(operator, None)
    return table | DRAWING | FAST_PATHS | LIST_OPERATORS


def compile_graph(module: fx.GraphModule, example_inputs: Sequence[Any],
                  notes: Mapping[str, Any] = MappingProxyType({})) -> Callable[[list[Any]], Any]:
    """A graph of ATen operators as a function; nothing is compiled before it is called."""
    program = FxProgram(module, f"graph_{next(_numbers)}", notes)

    def run(args: list[Any]) -> Any:        # a function, since wrappers keep the attributes of one
        return program(args)
    run._boxed_call = True      # type: ignore[attr-defined]
    return run


def tenon(module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
          mode: str | None = None) -> Callable[..., Any]:
    """The backend that `torch.compile` finds by this name.

    Options are `memory_budget` (bytes) and `autotune`, as `tn.jit` has them; raises ArgumentError for others.
    """
    if unknown := set(options or {}) - set(OPTIONS):
        raise ArgumentError(f"torch.compile: the backend tenon has no option {min(unknown)!r}",
                            hint=f"its options are {', '.join(OPTIONS)}")
    notes = {OPTIONS[name]: value for name, value in (options or {}).items() if value}
    backend = aot_autograd(fw_compiler=partial(compile_graph, notes=notes), decompositions=decompositions(),
                           partition_fn=min_cut_rematerialization_partition, keep_inference_input_mutations=True)
    compiled: Callable[..., Any] = backend(module, example_inputs)
    return compiled
