"""`tn.distributed.plan`: a model and a cluster -> a plan; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenon.errors import ArgumentError
from tenon.planning.cluster import Cluster, load_cluster
from tenon.planning.plan import Plan
from tenon.planning.search_plans import search
from tenon.planning.transformer_model import TransformerModel


def plan(what: Any, *args: Any, cluster: str | Path | Cluster, devices: int | None = None,
         overlap: bool = False) -> Plan:
    """The ways to divide a training step over `devices` of a cluster (all of them, unless said), the fastest first.

    `what` is a `TransformerModel`, whose step is forward, backward and AdamW's update in mixed precision.  `cluster` is
    a cluster, the path of its TOML file, or the name of one that comes with Tenon.  With `overlap`, messages run beside
    kernels.  Raises ArgumentError where no division fits the memory, or the sizes divide into no such number.

    >>> model = tn.distributed.TransformerModel(layers=24, width=2304, heads=24, batch=512)
    >>> tn.distributed.plan(model, cluster="a100", devices=32).sizes.devices
    32
    """
    chosen = load_cluster(cluster)
    count = chosen.devices if devices is None else devices
    if type(count) is not int or count < 1:
        raise ArgumentError(f"plan: devices is a whole number from 1 on, not {devices!r}")
    if not isinstance(what, TransformerModel):
        raise ArgumentError(f"plan: a TransformerModel is expected, not {type(what).__name__}",
                            hint="tn.distributed.TransformerModel(layers=24, width=2304, heads=24)")
    if args:
        raise ArgumentError("plan: a TransformerModel has no arguments")
    model = what.checked()
    found = search(model, chosen, count, overlap)
    text = f"{model.parameters / 1e9:.3g} billion parameters, {model.batch} x {model.tokens} tokens,"
    return Plan(text, chosen.name, tuple(level.name for level in chosen.levels), found)
