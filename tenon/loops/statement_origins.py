"""The loops of a kernel and the graph that they were made of -> which nodes each line of the loops computes.

Lowering changes indices, gives sums names and puts values into memory; what is done to elements stays.  So each node's
own expression is looked for in the statements, with anything in the place of an index, and whatever has a name in the
place of what was stored.  It is a reading aid: of a node that cannot be found again its users' lines are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tenon.errors import TenonError
from tenon.graph.ir import Graph, Node, Value
from tenon.loops.expression_builder import GraphExpressions
from tenon.loops.expressions import Binary, Call, Cast, Const, Expr, Index, Load, Local, Reduce, Select, SizeOf
from tenon.loops.loop_ir import BlockedAttention, Contraction, Kernel, Let, Loop, Nest, Stmt, Store, Update, statements
from tenon.loops.loop_printer import Row, rows_of
from tenon.loops.traversal import parts, walk

MAX_NODES = 64          # of a kernel, and
MAX_EXPRESSIONS = 4000      # in one of its statements: of more no line is told
SWAPPED = ("+", "*", "min", "max", "&", "|", "^", "==", "!=")


def nodes_of_rows(body: Graph, kernel: Kernel) -> list[set[int]]:
    """For every line of the kernel's text, the numbers of the nodes of `body` that it computes; of a loop all that
    its lines do."""
    rows = list(rows_of(kernel))
    found = _statements_of_nodes(body, kernel)
    own = [{k for k, listed in found.items() if statement in listed} for _, statement in rows]
    return [_with_inner(place, rows, own) for place in range(len(rows))]


def _with_inner(place: int, rows: list[Row], own: list[set[int]]) -> set[int]:
    text, statement = rows[place]
    found = set(own[place])
    if not isinstance(statement, (Loop, Contraction, BlockedAttention)):
        return found
    depth = len(text) - len(text.lstrip())
    for (inner, _), nodes in zip(rows[place + 1:], own[place + 1:], strict=True):
        if len(inner) - len(inner.lstrip()) <= depth:
            break
        found |= nodes
    return found


def _statements_of_nodes(body: Graph, kernel: Kernel) -> Mapping[int, set[Stmt | Nest]]:
    """By the number of a node, the statements that compute it."""
    listed = [s for nest in kernel.nests for s in statements(nest.body)]
    whole: set[Stmt | Nest] = {s for s in listed if isinstance(s, (BlockedAttention, Contraction, Store))}
    computing = [(s, values) for s in listed if (values := list(_values_of(s)))]
    found: dict[int, set[Stmt | Nest]] = defaultdict(set)
    if len(body.nodes) <= MAX_NODES and all(
            sum(len(x.below) for _, x in values) <= MAX_EXPRESSIONS for _, values in computing):
        for k, patterns in _patterns(body, kernel).items():
            matching = _Matching()
            found[k].update(s for s, values in computing if any(
                matching.finds(pattern, kind, x, of) for pattern, kind in patterns for of, x in values))
    _of_users(body, found, whole)
    return found


def _of_users(body: Graph, found: dict[int, set[Stmt | Nest]], whole: set[Stmt | Nest]) -> None:
    """Lines of nodes that only say where elements lie, and of those that were not found: those of who reads them."""
    numbers = {node: k for k, node in enumerate(body.nodes)}
    users = body.users()
    for node in reversed(body.nodes):
        k = numbers[node]
        if not found[k]:
            readers = {user for x in node.outputs for user in users[x]}
            found[k].update(*(found[numbers[user]] for user in readers))
        if not found[k]:
            found[k].update(whole)


def _values_of(statement: Stmt) -> Iterator[tuple[str | None, Expr]]:
    """What a statement computes: (how it is combined, if it is, the expression)."""
    match statement:
        case Let(value=value) | Store(value=value):
            yield None, value
        case Update(kind=kind, value=value):
            yield kind, value
        case Contraction(left=left, right=right):
            yield "add", Binary("*", left, right) if left.dtype is right.dtype else left


def _patterns(body: Graph, kernel: Kernel) -> Mapping[int, list[tuple[Expr, str | None]]]:
    """By the number of a node, what it does to elements, and the sums in it: (expression, how it is combined)."""
    build = GraphExpressions(body, dict(zip(body.params, kernel.inputs, strict=False)))
    numbers = {node: k for k, node in enumerate(body.nodes)}
    found: dict[int, list[tuple[Expr, str | None]]] = defaultdict(list)
    for node, k in numbers.items():
        for x in node.outputs:
            try:
                expression = build.at(x, tuple(Index(f"at{place}", n) for place, n in enumerate(x.shape)))
            except (TenonError, AssertionError, NotImplementedError, TypeError):
                continue                                # it has no rule of its own
            if not _is_named(expression) and not _is_handed_on(node, expression, build):
                found[k].append((expression, None))
    owned: dict[Value, list[Reduce]] = defaultdict(list)
    for part, value in build.owner.items():
        if isinstance(part, Reduce):
            owned[value].append(part)
    for value, sums in owned.items():
        if value.node in numbers:
            found[numbers[value.node]] += [(x.body, x.kind) for x in sums]
    return found


def _is_named(x: Expr) -> bool:
    return isinstance(x, (Load, Local, Const, Index, SizeOf, Reduce))


def _is_handed_on(node: Node, expression: Expr, build: GraphExpressions) -> bool:
    """Whether a node only says where the elements of another value lie."""
    if len(node.inputs) != 1 or not isinstance(x := node.inputs[0], Value):
        return False
    indices = tuple(Index(f"in{place}", n) for place, n in enumerate(x.shape))
    try:
        return _Matching().match(expression, build.at(x, indices))
    except (TenonError, AssertionError, NotImplementedError, TypeError):
        return False


class _Matching:
    """Whether an expression is the one of a pattern; what was compared is not compared again."""

    def __init__(self) -> None:
        self.known: dict[tuple[Expr, Expr], bool] = {}

    def finds(self, pattern: Expr, kind: str | None, x: Expr, of: str | None) -> bool:
        """Whether the pattern is in a statement's expression; a sum is that of an accumulator."""
        if kind is not None:
            return kind == of and self.match(pattern, x)
        return any(not _is_named(part) and self.match(pattern, part) for part in walk(x))

    def match(self, pattern: Expr, x: Expr) -> bool:
        key = pattern, x
        if key not in self.known:
            self.known[key] = self._match(pattern, x)
        return self.known[key]

    def _match(self, pattern: Expr, x: Expr) -> bool:
        if isinstance(x, Local) or (isinstance(x, Load) and x.buffer.role in ("temporary", "local")):
            return pattern.dtype is x.dtype and not isinstance(pattern, Const)
        match pattern, x:
            case Load(buffer=one), Load(buffer=other):
                return one is other
            case Const(value=one), Const(value=other):
                return one == other
            case Binary(op=one, left=a, right=b), Binary(op=other, left=c, right=d):
                alike = self.match(a, c) and self.match(b, d)
                return one == other and (alike or (one in SWAPPED and self.match(a, d) and self.match(b, c)))
            case Call(name=one), Call(name=other):
                return one == other and self._children(pattern, x)
            case (Select(), Select()):
                return self._children(pattern, x)
            case Cast(), Cast():
                return pattern.dtype is x.dtype and self._children(pattern, x)
            case (Index() | SizeOf()), _:
                return True
        return type(pattern) is type(x) and not parts(pattern, Reduce) and self._children(pattern, x)

    def _children(self, pattern: Expr, x: Expr) -> bool:
        a, b = pattern.children(), x.children()
        return len(a) == len(b) and all(self.match(p, q) for p, q in zip(a, b, strict=True))
