"""Elements -> those that are stored in one nest, for they share their outer loops and do not read one another."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.column_reductions import in_columns
from tenon.loops.store_target import StoreTarget, levels


def grouped(targets: Sequence[StoreTarget]) -> list[list[StoreTarget]]:
    """Targets that share their outer loops and do not read one another go into one nest, as early as can be."""
    level = levels(targets)
    groups: dict[int, list[list[StoreTarget]]] = {}
    for target in targets:
        nests = groups.setdefault(level[target], [])
        fitting = next((nest for nest in nests if _fits(target, nest)), None)
        if fitting is None:
            nests.append([target])
        else:
            fitting.append(target)
    return [nest for number in sorted(groups) for nest in groups[number]]


def _fits(target: StoreTarget, nest: Sequence[StoreTarget]) -> bool:
    """Whether the loops of the target are those of the nest, or the outer ones of them, or the other way round."""
    if in_columns(target) != in_columns(nest[-1]):
        return False
    one, other = target.product, nest[-1].product
    if one is not None or other is not None:
        return one == other and target.indices == nest[-1].indices
    longest = max((t.indices for t in nest), key=len)
    shared = min(len(longest), len(target.indices))
    return bool(longest) == bool(target.indices) and longest[:shared] == target.indices[:shared]
