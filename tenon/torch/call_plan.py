"""An FX graph -> what Tenon runs and what PyTorch does, in turns: as few and as large programs as the order allows.

In a turn PyTorch is first: a node of PyTorch that needs results of a program waits for the turn after it.  Nodes that
draw random numbers stay in the order of the graph.  Nodes that are numbers belong to no turn, where sizes tell them.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx

from tenon.records import dataclass, field
from tenon.torch.aten import is_mapped, name_of
from tenon.torch.input_mutations import is_mutation
from tenon.torch.report import Report

# Of these, the first argument says shape and type, and its elements are not read.
LIKE = frozenset({"rand_like", "randn_like", "randint_like", "bernoulli.p", "tenon.mask"})
# What makes sure of something, and gives nothing.
ASSERTIONS = frozenset({"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range",
                        "sym_constrain_range_for_size", "_functional_assert_async", "_linalg_check_errors"})
# Views, which PyTorch makes without a copy.
VIEWS = frozenset({"view", "permute", "expand", "unsqueeze", "squeeze", "slice", "select", "alias", "transpose", "t",
                   "detach", "as_strided"})


@dataclass
class PlanStep:
    """What is run after each other: nodes by PyTorch, then nodes by Tenon."""

    torch: list[fx.Node] = field(default_factory=list)
    tenon: list[fx.Node] = field(default_factory=list)


def make_plan(graph: fx.Graph, refused: Collection[fx.Node], numbers: Mapping[fx.Node, object]) -> list[PlanStep]:
    """The turns, where PyTorch runs the `refused` nodes and those without a rule."""
    turn_of: dict[fx.Node, int] = {}
    turns: list[PlanStep] = []
    by_tenon: set[fx.Node] = set()
    for_outputs, last_draw = read_by_outputs_alone(graph), 0

    def add(node: fx.Node, number: int) -> list[PlanStep]:
        turn_of[node] = number
        turns.extend(PlanStep() for _ in range(len(turns), number + 1))
        return turns

    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or node in numbers:
            turn_of[node] = 0
            continue
        if is_mutation(node):       # which comes behind all turns
            continue
        read = [n for n in elements_read(node) if n not in numbers]
        if is_torchs(node, refused) or (node in for_outputs and read[0] not in by_tenon):
            number = max((turn_of[n] + (n in by_tenon) for n in read), default=0)
            if is_drawn(node):
                number = last_draw = max(number, last_draw)
            add(node, number)[number].torch.append(node)
        else:
            by_tenon.add(node)
            number = max((turn_of[n] for n in read), default=0)
            add(node, number)[number].tenon.append(node)
    return turns


def is_assertion(node: fx.Node) -> bool:
    """Whether a node makes sure of something, in the order of effects or out of it."""
    if node.target is operator.getitem and isinstance(source := node.args[0], fx.Node):
        return is_assertion(source)
    target = node.args[1] if node.target is torch.ops.higher_order.with_effects else node.target
    return name_of(target) in ASSERTIONS


def elements_read(node: fx.Node) -> list[fx.Node]:
    """The nodes whose elements or numbers a node reads."""
    return [n for n in node.all_input_nodes if not (is_like(node) and n is node.args[0])]


def is_like(node: fx.Node) -> bool:
    """Whether a node looks at the type of its first argument alone."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (
        name_of(target) in LIKE or f"{name_of(target)}.{target._overloadname}" in LIKE)


def is_torchs(node: fx.Node, refused: Collection[fx.Node]) -> bool:
    """Whether PyTorch runs a node; the parts of a result go with it."""
    if node.target is operator.getitem and isinstance(source := node.args[0], fx.Node):
        return is_torchs(source, refused)
    return node in refused or not is_mapped(node.target)


def is_drawn(node: fx.Node) -> bool:
    """Whether a node draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def is_view(node: fx.Node) -> bool:
    """Whether a node shows its first argument another way."""
    return isinstance(node.target, torch._ops.OpOverload) and name_of(node.target) in VIEWS


def read_by_outputs_alone(graph: fx.Graph) -> set[fx.Node]:
    """The views that nothing reads but what the graph returns, and others of them."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if is_view(node) and all(user.op == "output" or user in found for user in node.users):
            found.add(node)
    return found


def counted(turns: Sequence[PlanStep], refused: Mapping[fx.Node, str], programs: int) -> Report:
    """What becomes of the operators of a graph."""
    report = Report(graphs=1, programs=programs)
    for node in (node for turn in turns for node in (*turn.tenon, *turn.torch)):
        name = name_of(node.target)
        if name == "getitem":
            continue
        if not is_torchs(node, refused):
            report.operators += 1
        elif is_assertion(node) or node.op != "call_function":
            continue
        elif is_drawn(node):
            report.drawn += 1
        else:
            report.in_torch[name] += 1
            report.reasons[name] = refused.get(node, "it is not in the table")
    return report
