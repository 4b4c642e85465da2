"""A graph and the shardings of its parameters -> how every value is split, and where collectives have to be.

Values are visited in order, and each node is computed as `NodeSearch` finds cheapest (GSPMD, Xu et al. 2021).  A sum of
parts stays one through what is linear.  A composite operator is opened where an axis is split along which it cannot be
computed part by part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tenon.errors import CaptureError, Location
from tenon.graph.build import Builder, expansion, types_of
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import OPS
from tenon.graph.partition import has_effect, needed
from tenon.graph.size_stages import is_sized_by_data
from tenon.ops.control_flow_nodes import BRANCHES, is_control
from tenon.records import replace
from tenon.sharding.axis_layout import WHOLE, Layout, ValueSharding, layouts_of, numbers_of, replicated
from tenon.sharding.control_flow import ControlSearch
from tenon.sharding.meeting_layouts import met_layouts
from tenon.sharding.mesh import Mesh
from tenon.sharding.node_search import Known, NodeSearch
from tenon.sharding.reshard import cost_of, elements_sent, stages_between
from tenon.sharding.sharding import Axes, Sharding
from tenon.sharding.sharding_plan import NodeSharding, PlannedCollective, ShardingPlan
from tenon.sharding.stacked_axes import cuts_of, pieces_apart
from tenon.sharding.value_shardings import ValueShardings, bytes_of, value_of

ELSEWHERE = frozenset({"to_device", "send", "recv"})

Given = Sharding | ValueSharding | None


def propagate(graph: Graph, shardings: Sequence[Given], mesh: Mesh,
              results: Sequence[Given | str] = (), known: Known | None = None) -> ShardingPlan:
    """How to compute a graph whose parameters are split so (None: replicated).

    A result is returned as `results` says: by a sharding, replicated (None), or "found": as it is made, where that is a
    split of axes.  Results that are not named are "found".  Who propagates again and again gives one dict `known`.

    Raises CaptureError for sizes that are symbols or that the data decide, ShapeError for a sharding that does not fit.
    """
    return _Propagation(graph, mesh, {} if known is None else known).run(shardings, results)


class _Propagation:
    def __init__(self, graph: Graph, mesh: Mesh, known: Known):
        check_sizes_are_given(graph)
        if symbols := graph.symbols():
            raise CaptureError(f"{graph.name}: sizes are symbols ({', '.join(symbols)}), and a mesh splits numbers")
        self.source, self.mesh, self.known = pieces_apart(graph) if mesh.size > 1 else graph, mesh, known
        self.values = ValueShardings(mesh, cuts_of(self.source))
        self.search = NodeSearch(self.values, known)
        self.builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
        self.rings: dict[Node, Axes] = {}
        self.meets: Mapping[Value, Sequence[Layout]] = {}       # of values of the source, and what was made of them
        self.needs: dict[tuple[Node, int], ValueSharding] = {}
        self.collectives: list[tuple[Node | None, Value, PlannedCollective]] = []
        self.bodies: dict[Node, Mapping[Graph, ShardingPlan]] = {}
        self.cost = 0.0

    def run(self, shardings: Sequence[Given], results: Sequence[Given | str] = (), others: str = "found"
            ) -> ShardingPlan:
        """The plan; results that are not named are `others`: "found", or "made", as they are whatever that is."""
        replaced: dict[Value, Input] = {}
        for old, new, sharding in zip(self.source.params, self.builder.params, shardings, strict=True):
            replaced[old] = new
            self.values.make(new, self._given(new, sharding))
        live = needed(self.source, self.source.results, has_effect)
        given = {p: self.values.made[value_of(replaced[p])].layouts for p in self.source.params}
        self.meets = met_layouts(self.source, given, self.mesh)
        self._visit_all([node for node in self.source.nodes if node in live], replaced)
        returned = [replaced[r] for r in self.source.results]
        found = []
        for k, value in enumerate(returned):
            assert isinstance(value, Value)
            wanted = results[k] if k < len(results) else others
            found.append(self._returned(value, wanted))
            self._move(None, value, found[-1], "which is returned")
        graph = self.builder.finish([x for x in returned if isinstance(x, Value)])
        graph.notes = self.source.notes
        live = needed(graph, graph.results, has_effect)
        collectives = [c for node, _, c in self.collectives if node is None or node in live]
        return ShardingPlan(self.mesh, graph, self.values.made, self.needs, tuple(found), self.rings, collectives,
                            self.bodies, self.cost)

    def _given(self, value: Value, sharding: Given) -> ValueSharding:
        if isinstance(sharding, ValueSharding):
            return sharding
        return replicated(value.ndim) if sharding is None else ValueSharding(layouts_of(sharding, numbers_of(value)))

    def _returned(self, value: Value, wanted: Given | str) -> ValueSharding:
        if not isinstance(wanted, str):
            return self._given(value, wanted)
        made = self.values.made[value]
        if wanted == "made":
            return made
        met = self.values.wanted.get(value, made.layouts)      # of a gradient, as its parameter is split
        layouts = met if any(len(layout) > 1 for layout in made.layouts) else made.layouts
        return ValueSharding(tuple(layout if len(layout) <= 1 else WHOLE for layout in layouts))

    # ------------------------------------------------------------ nodes

    def _visit_all(self, nodes: Sequence[Node], replaced: dict[Value, Input], loc: Location | None = None) -> None:
        readers = Counter(x for node in nodes for x in dict.fromkeys(node.inputs) if isinstance(x, Value))
        for old, new in replaced.items():
            if isinstance(new, Value):
                self.values.readers[new] = max(self.values.readers[new], readers[old])
        for node in nodes:
            inputs = tuple(replaced[x] if isinstance(x, Value) else x for x in node.inputs)
            outputs = self._visit(node, inputs, loc or node.loc)
            for old, new in zip(node.outputs, outputs, strict=True):
                replaced[old] = new
                if isinstance(new, Value):
                    self.values.readers[new] = max(self.values.readers[new], readers[old])
                    if old in self.meets:
                        self.values.wanted[new] = self.meets[old]
                        self._move_once(new)

    def _visit(self, node: Node, inputs: tuple[Input, ...], loc: Location | None) -> tuple[Input, ...]:
        if node.op.name in ELSEWHERE:
            raise CaptureError(f"{node.op.name}: a function that runs on a mesh has no devices beside", where=loc,
                               hint="tn.distributed.shard says what each device of the mesh has")
        trial = Node(node.op, inputs, node.attrs, node.outputs, loc)
        if is_control(trial):
            return self._control(trial)
        choice = self.search.best(trial)
        if node.op.expand is not None and (node.graphs or self._loses_a_split(trial, choice)):
            body = expansion(node.op, types_of(inputs), node.attrs)
            inner: dict[Value, Input] = dict(zip(body.params, (x for x in inputs if x is not None), strict=True))
            self._visit_all(body.nodes, inner, loc)
            return tuple(inner[r] for r in body.results)
        inputs = tuple(self._viewed(x, wanted) if isinstance(x, Value) and wanted is not None else x
                       for x, wanted in zip(inputs, choice.inputs, strict=True))
        out = self.builder.emit(node.op, inputs, node.attrs, loc)
        listed: tuple[Value, ...] = out if isinstance(out, tuple) else (out,)
        made = self.builder.nodes[-1]
        for k, (x, sharding) in enumerate(zip(inputs, choice.inputs, strict=True)):
            if isinstance(x, Value) and sharding is not None:
                self.needs[made, k] = sharding
                self._move(made, x, sharding, f"for {node.op.name} {self._shown(choice)}")
        if choice.ring:
            self._ring(made, choice)
        self.cost += choice.work
        for value, sharding in zip(listed, choice.outputs, strict=True):
            self.values.make(value, sharding)
        return listed

    def _move_once(self, value: Value) -> None:
        """What is split within pieces, and will be read beside state that is not, more than once, is moved now."""
        wanted = ValueSharding(tuple(self.values.wanted[value]))
        made = self.values.made[value]
        if self.values.readers[value] > 1 and not made.partial and any(len(layout) > 1 for layout in made.layouts) \
                and wanted.split_axes and wanted != made:
            self._move(value.node, value, wanted, "which meets state that is split so")
            self.values.have[value].remove(wanted)
            self.values.have[value].insert(0, wanted)

    def _control(self, node: Node) -> tuple[Value, ...]:
        """A branch or loop, whose graphs are split in their turn."""
        made = tuple(self.values.made[x] if isinstance(x, Value) else replicated(0) for x in node.inputs)
        choice = ControlSearch(self.mesh, self._split, self._entering).best(node, made)
        inputs = tuple(self._full(x, node.loc) if isinstance(x, Literal) and s.partial else x
                       for x, s in zip(node.inputs, choice.inputs, strict=True))
        out = self.builder.emit(node.op, inputs, node.attrs, node.loc)
        found = self.builder.nodes[-1]
        for k, (x, sharding) in enumerate(zip(inputs, choice.inputs, strict=True)):
            if isinstance(x, Value):
                self.needs[found, k] = sharding
                self._move(found, x, sharding, f"for {node.op.name}")
        times = node.attrs.get("length", 1)
        told = "in a branch" if node.op in BRANCHES else f"in {node.attrs.get('length', 'all')} rounds"
        for plan in choice.plans.values():
            self.collectives += [(found, found.output, replace(
                c, bytes=c.bytes * times, reason=f"{c.reason}, {told}")) for c in plan.collectives]
        self.bodies[found] = choice.plans
        self.cost += choice.cost
        for value, sharding in zip(found.outputs, choice.outputs, strict=True):
            self.values.make(value, sharding)
        return out if isinstance(out, tuple) else (out,)

    def _split(self, graph: Graph, params: Sequence[ValueSharding], results: Sequence[ValueSharding]) -> ShardingPlan:
        """The plan of a graph in a node."""
        key = graph, tuple(params), tuple(results)
        if key not in self.known:
            self.known[key] = _Propagation(graph, self.mesh, self.known).run(params, results, "made")
        plan: ShardingPlan = self.known[key]
        return plan

    def _entering(self, x: Input, target: ValueSharding) -> int:
        return self.values.direct(x, target) if isinstance(x, Value) else 0

    def _full(self, x: Literal, loc: Location | None) -> Value:
        """A number as a value: a term of a sum of parts, say."""
        made: Value = self.builder.emit(OPS["full_op"], (x,), {"shape": ()}, loc)
        self.values.make(made, replicated(0))
        return made

    def _ring(self, node: Node, choice: NodeSharding) -> None:
        self.rings[node] = choice.ring
        value = value_of(node.inputs[1])
        self.collectives.append((node, value, PlannedCollective(
            "collective_permute", self.search.bytes_round(node, choice.inputs, choice.ring), choice.ring,
            f"keys and values of {node.op.name}", node.loc, f"computed as {choice.outputs[0]}")))

    def _shown(self, choice: NodeSharding) -> str:
        return f"computed as {', '.join(map(str, choice.outputs))}"

    def _loses_a_split(self, node: Node, choice: NodeSharding) -> bool:
        """Whether an input has to be joined that some rank has a part of."""
        return any(isinstance(x, Value) and wanted is not None and not set(self.values.made[x].split_axes) <= set(
            wanted.split_axes) for x, wanted in zip(node.inputs, choice.inputs, strict=True))

    def _move(self, node: Node | None, value: Value, target: ValueSharding, reason: str) -> None:
        if target in self.values.have[value]:
            return
        source = self.values.nearest(value, target)
        self.cost += cost_of(source, target, numbers_of(value), self.mesh) * bytes_of(value)
        for stage in stages_between(source, target, numbers_of(value), self.mesh):
            for move, count in elements_sent(stage, self.mesh):
                name = {"gather": "all_gather", "reduce": "all_reduce", "scatter": "reduce_scatter",
                        "exchange": "all_to_all"}[move.kind]
                what = value.node.op.name if value.node is not None else value.name or "an operand"
                where = node.loc if node is not None else value.node.loc if value.node is not None else None
                self.collectives.append((node, value, PlannedCollective(
                    name, count * bytes_of(value), move.over, f"{what} {value.type}", where, reason)))
        self.values.have[value].append(target)

    def _viewed(self, value: Value, target: ValueSharding) -> Value:
        """The value, or the same view made once more of what is easier to move: rows before they are repeated, say."""
        if (value, target) in self.values.again:
            return self.values.again[value, target]
        if target in self.values.have[value]:
            return value
        before = self.values.before_view(value, target)
        if before is None or self.values.cost(value, target) >= self.values.direct(value, target):
            return value
        node = value.node
        assert node is not None
        source = self._viewed(value_of(node.inputs[0]), before)
        again: Value = self.builder.emit(node.op, (source,), node.attrs, node.loc)
        self.needs[self.builder.nodes[-1], 0] = before
        self._move(self.builder.nodes[-1], source, before, f"for {node.op.name} computed as {target}")
        self.values.make(again, target)
        self.values.again[value, target] = again
        return again


def check_sizes_are_given(graph: Graph) -> None:
    """Raise CaptureError where the data decide a size."""
    if is_sized_by_data(graph):
        node = next((node for node in graph.nodes if node.op.data_dependent), None)
        raise CaptureError(f"{graph.name}: the data decide a size here, and a mesh splits sizes that are known before",
                           where=None if node is None else node.loc,
                           hint="keep the shape: tn.where(mask, x, 0).sum() for x[mask].sum(); or call it outside of "
                                "the function that runs on the mesh")






