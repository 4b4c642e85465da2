"""`and`, `or`, `not`, conditional expressions, comparisons, calls and reads -> what decides at run time.

    x and y         ->    _tenon.both(lambda: y) if _tenon.data(x) else _tenon.kept() and y
    a if c else b   ->    _tenon.choose(lambda: a, lambda: b) if _tenon.data(c) else a if _tenon.kept() else b

The functions are called where the condition is a tensor, and only there: a Python value leaves Python's own expression.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

from tenon.capture.convert.ast_templates import HELPER, expression
from tenon.capture.convert.desugar_slice_stores import changes_slice, is_slice, place
from tenon.capture.convert.scope import mangled

UNTOUCHED = frozenset({"super", "locals", "vars", "dir", "eval", "exec", "globals", "__import__"})
UNMOVABLE = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)       # mean something else inside a lambda
COMPARED = {ast.Is: "_tenon.same(LEFT, RIGHT)", ast.IsNot: "_tenon.negate(_tenon.same(LEFT, RIGHT))",
            ast.Eq: "_tenon.equal(LEFT, RIGHT)", ast.NotEq: "_tenon.unequal(LEFT, RIGHT)"}
CONTAINED = {ast.In: "_tenon.contains(LEFT, RIGHT)", ast.NotIn: "_tenon.negate(_tenon.contains(LEFT, RIGHT))"}
MAKING = (ast.Call, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOKING_AT_KINDS = ("type", "isinstance")
ASKING = ("any", "all", "next")     # which may leave an iterator where it is
ONE = f"{HELPER}_temp_one"      # an element of a comprehension
Visit = Callable[[ast.expr], ast.expr]
DEEPEST = 5             # nesting beyond which an expression, which is written twice a level, stays as it is


class Expressions(ast.NodeTransformer):
    """Rewrites the expressions of one function; `merged` are the variables that may hold a `UnionValue`."""

    def __init__(self, merged: Collection[str], owner: str | None):
        self.merged, self.owner = merged, owner
        self.depth = self.temps = 0
        self.in_iterable = False        # of a comprehension, where no variable can be bound
        self.dropped: ast.AST | None = None     # the expression whose value a statement drops

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(x) for x in node.decorator_list]
        node.args.defaults = [self.visit(x) for x in node.args.defaults]
        node.args.kw_defaults = [x and self.visit(x) for x in node.args.kw_defaults]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        outer, self.in_iterable = self.in_iterable, True
        node.iter = self.visit(node.iter)
        node.iter = expression("_tenon.certain(VALUE)", node.iter, VALUE=node.iter)
        self.in_iterable = outer
        node.ifs = [self.visit(x) for x in node.ifs]
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """Once as it is, and once for each element of what the data decide the elements of."""
        if self.depth >= DEEPEST or any(isinstance(x, UNMOVABLE) for x in ast.walk(node)):
            return self._comprehended(node)
        one, first = copy.deepcopy(node), node.generators[0]
        items = self._there(first.iter)
        one.generators[0].iter = expression(f"({ONE},)", first.iter)
        first.iter = expression("_tenon.kept()", first.iter)
        with self._deeper():
            return expression(f"_tenon.parts(lambda {ONE}: PARTS) if _tenon.open(ITEMS) else WHOLE", node, ITEMS=items,
                              PARTS=self._comprehended(one), WHOLE=self._comprehended(node))

    def _comprehended(self, node: ast.ListComp) -> ast.AST:
        return expression("_tenon.filtered(ITEMS)", node, ITEMS=self.generic_visit(node)) \
            if self._move_filter(node) else self.generic_visit(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return expression("_tenon.filtering(ITEMS)", node, ITEMS=self.generic_visit(node)) \
            if self._move_filter(node) else self.generic_visit(node)

    def _move_filter(self, node: ast.ListComp | ast.GeneratorExp) -> bool:
        """Write the condition behind the last `for` into the element, where it may be one on a tensor."""
        last = node.generators[-1]
        tests = [x for x in last.ifs if not isinstance(x, ast.Constant)]
        if not tests or any(isinstance(x, UNMOVABLE) for x in ast.walk(node.elt)) or last.is_async:
            return False
        test = tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.And(), tests), tests[0])
        node.elt = expression("_tenon.perhaps(TEST, lambda: VALUE)", node.elt, TEST=test, VALUE=node.elt)
        last.ifs = []
        return True

    # ------------------------------------------------------------ conditions

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def _twice(self, node: ast.expr, visit: Visit | None = None) -> tuple[ast.expr, ast.expr] | None:
        """The expression converted, two times; None where it has to stay as it is."""
        visit = visit or self._there
        if self.depth >= DEEPEST or any(isinstance(x, UNMOVABLE) for x in ast.walk(node)):
            return None
        with self._deeper():
            other = copy.deepcopy(node)
            return visit(node), visit(other)

    def visit_BoolOp(self, node: ast.BoolOp, asked: int = 0) -> Any:
        """`asked`: of so many parts, 0, 1 (the first) or 2 (all), nobody wants to know more than whether they hold."""
        first, kind = node.values[0], node.op
        if isinstance(first, ast.BoolOp) and type(first.op) is type(kind):
            flat = ast.BoolOp(kind, [*first.values, *node.values[1:]])
            return self.visit_BoolOp(ast.copy_location(flat, node), asked)
        if len(node.values) > 2:
            right = reduce(lambda later, first: ast.copy_location(ast.BoolOp(kind, [first, later]), first),
                           reversed(node.values[1:-1]), node.values[-1])
            return self.visit_BoolOp(ast.copy_location(ast.BoolOp(kind, [first, right]), node), asked)
        both = self._twice(node.values[1], partial(self._later, kind, asked))
        if both is None:
            return self.generic_visit(node)
        first = self._asked(first) if asked else self._first(first)
        text = "_tenon.both(lambda: LATER) if _tenon.data(FIRST) else _tenon.kept() and AGAIN" \
            if isinstance(node.op, ast.And) else \
            "_tenon.either(lambda: LATER) if _tenon.data(FIRST) else _tenon.kept() or AGAIN"
        return expression(text, node, FIRST=first, LATER=both[0], AGAIN=both[1])

    def _first(self, node: ast.expr) -> ast.expr:
        """What is given on, or given up for the part behind it: in `(a and b) or c` nobody gets to see a."""
        found: ast.expr = self.visit_BoolOp(node, asked=1) if isinstance(node, ast.BoolOp) else self._there(node)
        return found

    def _later(self, kind: ast.boolop, asked: int, node: ast.expr) -> ast.expr:
        """What follows the first part."""
        if asked == 1 and isinstance(node, ast.BoolOp) and type(node.op) is type(kind):
            found: ast.expr = self.visit_BoolOp(node, asked)
            return found
        return self._condition(node) if asked == 2 else self._there(node)

    def _asked(self, node: ast.expr) -> ast.expr:
        """Part of a condition, or what is as true as it: Python asks a user's `__bool__` once."""
        found: ast.expr = self.visit_BoolOp(node, asked=2) if isinstance(node, ast.BoolOp) else \
            expression("_tenon.asked(VALUE)", node, VALUE=self._there(node))
        return found

    def _condition(self, node: ast.expr) -> ast.expr:
        """A condition, which is asked by whoever it is for."""
        return self._asked(node) if isinstance(node, ast.BoolOp) else self._there(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        then, other = self._twice(node.body), self._twice(node.orelse)
        if then is None or other is None:
            return self.generic_visit(node)
        return expression("_tenon.choose(lambda: THEN, lambda: OTHER) if _tenon.data(TEST) else "
                          "SAME if _tenon.kept() else REST", node, TEST=self._condition(node.test),
                          THEN=then[0], OTHER=other[0], SAME=then[1], REST=other[1])

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test, test = ast.Constant(True), self._condition(node.test)
        self.generic_visit(node)
        node.test = test
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test, test = ast.Constant(True), self._condition(node.test)
        self.generic_visit(node)
        node.test = test
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return expression("_tenon.negate(X)", node, X=self._condition(node.operand))
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1:
            return self._chained(node)
        left, right = node.left, node.comparators[0]
        operator = type(node.ops[0])
        if operator in CONTAINED:
            return expression(CONTAINED[operator], node, LEFT=self.visit(left), RIGHT=self._there(right))
        if operator not in COMPARED:
            return self.generic_visit(node)
        return expression(COMPARED[operator], node, LEFT=self._there(left), RIGHT=self._there(right))

    def _chained(self, node: ast.Compare) -> ast.AST:
        """`a < b < c` as `a < (t := b) and t < c`."""
        if self.in_iterable:
            return self.generic_visit(node)
        self.temps += 1
        name, middle = f"{HELPER}_temp_{self.temps}", node.comparators[0]
        kept = ast.copy_location(ast.NamedExpr(ast.copy_location(ast.Name(name, ast.Store()), middle), middle), middle)
        read = ast.copy_location(ast.Name(name, ast.Load()), middle)
        first = ast.copy_location(ast.Compare(node.left, node.ops[:1], [kept]), node)
        rest = ast.copy_location(ast.Compare(read, node.ops[1:], node.comparators[1:]), node)
        both: ast.AST = self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), [first, rest]), node))
        return both

    # ------------------------------------------------------------ text

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        if all(isinstance(x, ast.Constant) for x in node.values):
            return node
        parts = ast.Tuple([self._formatted(x) for x in node.values], ast.Load())
        return expression("_tenon.text(PARTS)", node, PARTS=ast.copy_location(parts, node))

    def _formatted(self, node: Any) -> ast.expr:
        if not isinstance(node, ast.FormattedValue):
            found: ast.expr = node
            return found
        spec = ast.Constant("") if node.format_spec is None else self.visit(node.format_spec)
        parts = [self._there(node.value), ast.Constant(node.conversion), spec]
        return ast.copy_location(ast.Tuple([ast.copy_location(x, node.value) if isinstance(x, ast.Constant) else x
                                            for x in parts], ast.Load()), node.value)

    # ------------------------------------------------------------ calls, attributes, variables

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.dropped = node.value
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        of_slice = node is self.dropped and changes_slice(node)
        made = any(isinstance(x, MAKING) for given in (*node.args, *node.keywords) for x in ast.walk(given))
        if isinstance(node.func, ast.Name) and node.func.id in ASKING and node.args and isinstance(
                node.args[0], (ast.GeneratorExp, ast.Call)):
            for part in getattr(node.args[0], "generators", ())[:1]:
                if not isinstance(part.iter, (ast.GeneratorExp, ast.Call)):
                    part.iter = expression("_tenon.named(VALUE)", part.iter, VALUE=part.iter)
            node.args[0] = expression("_tenon.fresh(VALUE)", node.args[0], VALUE=node.args[0])
        looks = isinstance(node.func, ast.Name) and node.func.id in LOOKING_AT_KINDS
        node.args = [self._counted(x) if isinstance(x, ast.Starred) else self._there(x) if looks else self.visit(x)
                     for x in node.args]
        node.keywords = [self._counted(x) if x.arg is None else self.visit(x) for x in node.keywords]
        if isinstance(node.func, ast.Name) and (node.func.id in UNTOUCHED or node.func.id.startswith(HELPER)):
            return node
        if of_slice:
            node.func = self._changing(node.func)
            return node
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name) and node.func.value.id == HELPER:
                return node
            node.func.value = self.visit(node.func.value)
        else:
            node.func = self._there(node.func)
        call = "_tenon.call(FUNCTION, True)" if made else "_tenon.call(FUNCTION)"
        node.func = expression(call, node.func, FUNCTION=node.func)
        return node

    def _changing(self, method: Any) -> ast.expr:
        """A method that changes a slice in place, and what it is a slice of."""
        name = ast.copy_location(ast.Constant(method.attr), method)
        return expression("_tenon.changing(PLACE, NAME)", method, PLACE=place(method.value, self.visit), NAME=name)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == HELPER:
            return node
        if node.attr == "__class__" and isinstance(node.ctx, ast.Load):
            return expression("_tenon.kind(OBJECT)", node, OBJECT=self._there(node.value))
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        name = ast.copy_location(ast.Constant(mangled(node.attr, self.owner)), node)
        return expression("_tenon.get(OBJECT, NAME)", node, OBJECT=node.value, NAME=name)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.ctx, ast.Store) and is_slice(node.value):
            return self._item(place(node, self.visit), node)
        self.generic_visit(node)
        if any(isinstance(x, (ast.Slice, ast.Starred)) for x in [node.slice, *ast.iter_child_nodes(node.slice)]) \
                or isinstance(node.slice, ast.Constant):
            node.value = expression("_tenon.indexed(HOLDER)", node.value, HOLDER=node.value)
            return node
        if isinstance(node.ctx, ast.Load):
            return expression("_tenon.item(HOLDER, INDEX)", node, HOLDER=node.value, INDEX=node.slice)
        return self._item(expression("_tenon.place(HOLDER, INDEX)", node, HOLDER=node.value, INDEX=node.slice), node)

    def _item(self, place: ast.expr, node: ast.Subscript) -> ast.AST:
        """What stands at a place, to be stored to or deleted."""
        return ast.copy_location(ast.Attribute(place, "item", node.ctx), node)

    def _counted(self, node: Any) -> Any:
        """Something that is opened into arguments, or as Python counts elements."""
        value = self.visit(node.value)
        node.value = expression("_tenon.certain(VALUE)", value, VALUE=value)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = expression("_tenon.listed(VALUE)", node.value, VALUE=node.value)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        counted: ast.AST = self._counted(node)
        return counted

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        node.values = [x if k is not None else expression("_tenon.certain(VALUE)", x, VALUE=x)
                       for k, x in zip(node.keys, node.values, strict=True)]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.BitOr):      # of dictionaries too
            node.left = expression("_tenon.certain(VALUE)", node.left, VALUE=node.left)
            node.right = expression("_tenon.certain(VALUE)", node.right, VALUE=node.right)
        if isinstance(node.op, ast.Mod) and not (isinstance(node.left, ast.Constant) and type(node.left.value) is int):
            return expression("_tenon.percent(LEFT, RIGHT)", node, LEFT=node.left, RIGHT=node.right)
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        self.generic_visit(node)
        by_object = any(isinstance(x, (ast.MatchClass, ast.MatchSingleton)) for x in ast.walk(node))
        look = "_tenon.matched(VALUE)" if by_object else "_tenon.certain(VALUE)"
        node.subject = expression(look, node.subject, VALUE=node.subject)
        return node

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        read: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Attribute):       # which must be there
                again = ast.copy_location(ast.Attribute(copy.deepcopy(target.value), target.attr, ast.Load()), target)
                read.append(ast.copy_location(ast.Expr(self.visit(again)), node))
        self.generic_visit(node)
        return [*read, node]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not self._may_be_choice(node):
            return node
        text = ast.copy_location(ast.Constant(node.id), node)
        return expression("_tenon.read(VALUE, NAME)", node, VALUE=node, NAME=text)

    def _may_be_choice(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self.merged

    def _raw(self, node: ast.expr) -> ast.expr:
        """The expression, where it is a variable without looking at what it holds."""
        found: ast.expr = node if isinstance(node, ast.Name) else self.visit(node)
        return found

    def _there(self, node: ast.expr) -> ast.expr:
        """The expression, where it is a variable without looking at what it holds, but that it holds anything."""
        if not self._may_be_choice(node):
            return self._raw(node)
        assert isinstance(node, ast.Name)
        text = ast.copy_location(ast.Constant(node.id), node)
        return expression("_tenon.held(VALUE, NAME)", node, VALUE=node, NAME=text)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.targets = [self.visit(x) for x in node.targets]
        node.value = self._held(node.value)
        patterns = [x for x in node.targets if isinstance(x, (ast.Tuple, ast.List))]
        if patterns and not isinstance(node.value, (ast.Tuple, ast.List)):
            node.value = unpacking(node.value, patterns[0])
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None:
            node.value = self._held(node.value)
        return node

    def _held(self, node: ast.expr) -> ast.expr:
        """A value that is kept or returned: what it is need not be known."""
        if isinstance(node, (ast.Tuple, ast.List)) and not any(isinstance(x, ast.Starred) for x in node.elts):
            node.elts = [self._held(x) for x in node.elts]
            return node
        return self._there(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.target.id in self.merged:
            read: Any = self.visit_Name(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
            target = ast.copy_location(ast.Name(node.target.id, ast.Store()), node.target)
            return [ast.copy_location(ast.Assign([target], read), node), node]
        return node


def unpacking(value: ast.expr, target: ast.Tuple | ast.List) -> ast.expr:
    """A value that is unpacked into the variables of a target."""
    return expression("_tenon.unpack(VALUE, PATTERN)", value, VALUE=value, PATTERN=_pattern(target, value))


def _pattern(target: ast.expr, at: ast.AST) -> ast.expr:
    if isinstance(target, (ast.Tuple, ast.List)):
        parts: ast.expr = ast.Tuple([_pattern(x, at) for x in target.elts], ast.Load())
    else:
        parts = ast.Constant("*" if isinstance(target, ast.Starred) else None)
    return ast.copy_location(parts, at)
