"""The table: every ATen operator that Tenon runs, by name, with the rule that says it in Tenon's operators.

What is not here, PyTorch runs (`tenon.torch.call_plan`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tenon.torch.aten_call import Rule
from tenon.torch.aten_embedding_bags import BAGS
from tenon.torch.aten_fourier import FOURIER
from tenon.torch.aten_gradients import GRADIENTS
from tenon.torch.aten_indexing import GATHERING
from tenon.torch.aten_linalg import LINEAR_ALGEBRA
from tenon.torch.aten_norms import NORMS
from tenon.torch.aten_pointwise import POINTWISE
from tenon.torch.aten_products import CONTRACTIONS
from tenon.torch.aten_quantized import QUANTIZED
from tenon.torch.aten_reductions import REDUCTIONS
from tenon.torch.aten_resampling import RESAMPLING
from tenon.torch.aten_views import VIEWS
from tenon.torch.higher_order import HIGHER_ORDER

TABLE: dict[str, Rule] = {**POINTWISE, **VIEWS, **REDUCTIONS, **CONTRACTIONS, **NORMS, **GATHERING, **BAGS,
                         **FOURIER, **LINEAR_ALGEBRA, **GRADIENTS, **RESAMPLING, **QUANTIZED}


def name_of(target: Any) -> str:
    """The name of an operator in the table: `add` of `aten.add.Tensor`, `prims.iota` of others'."""
    if not isinstance(target, torch._ops.OpOverload):
        return str(getattr(target, "__name__", target))
    space, _, name = target._schema.name.partition("::")
    return name if space == "aten" else f"{space}.{name}"


def rule_for(target: Any) -> Rule | None:
    """The rule of an operator, if it has one."""
    return TABLE.get(name_of(target)) if isinstance(target, torch._ops.OpOverload) else None


def is_mapped(target: Any) -> bool:
    """Whether Tenon has a rule for an operator, with graphs in it or without."""
    return rule_for(target) is not None or higher_order_rule(target) is not None


def higher_order_rule(target: Any) -> Callable[..., Any] | None:
    """The rule of an operator that holds graphs, if it has one."""
    return HIGHER_ORDER.get(name_of(target)) if isinstance(target, torch._ops.HigherOrderOperator) else None
