"""An operator is one definition: nothing outside `tenon/ops/` knows operators by name, and a user's has all of them."""

import ast
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon.config import config
from tenon.debug.node_costs import flops_of
from tenon.debug.overflow import may_overflow
from tenon.eager import compiled_ops, tier_up
from tenon.errors import ArgumentError
from tenon.graph.op import OPS
from tenon.graph.partition import is_cheap, is_light
from tenon.passes.simplify import simplify
from tenon.program.kernel import multiply_adds

ROOT = Path(tn.__file__).parent
MAX_TABLED = 4          # names of operators in one table outside ops/: what four words may be by chance
# Who speaks another language, whose words are theirs: files and calls of other libraries, Python's and PyTorch's names,
# kinds of reductions and functions of scalars in loops and machine code.
OTHER_LANGUAGES = ("onnx", "torch", "loops", "backends", "cpython", "llvm", "nn", "distributed", "planning/collective_time",
                   "pytorch_methods", "pytorch_names", "pytorch_in_place", "pytorch_functions", "linalg", "fft", "capture/convert/builtin_overrides", "models",
                   "debug/porting", "graph/synonyms", "unpacked_rows", "special", "migration_hints", "__init__", "dims", "capture/code_monitor", "capture/code_origin", "capture/split/closures")
# Operators that are constructs of the language, and a formula's own signs.
CONSTRUCTS = {"cond", "switch", "while_loop", "scan", "while_gradient", "recomputed", "custom_call", "call", "fused",
              "send", "recv", "to_device"}
OWN_SIGNS = ("debug/symbolic_derivative",)


def tables(path):
    """(line, the names of operators in it) for each table of strings or operators in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else ()
        names = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
        names |= {word for part in parts if isinstance(part, ast.Name) for word in [part.id] if word in OPS}
        if found := (names & set(OPS)) - CONSTRUCTS:
            yield node.lineno, sorted(found)


def test_no_table_outside_ops_knows_operators_by_name():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT).with_suffix(""))
        if not name.startswith("ops/") and not name.startswith(OTHER_LANGUAGES) and name not in OWN_SIGNS:
            found |= {f"{name}:{line}": names for line, names in tables(path) if len(names) > MAX_TABLED}
    assert not found


@pytest.fixture
def user_operators():
    """Takes the operators of a test away again."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        del OPS[name]


def same_type(x, y=None):
    return x


def node_of(op, *types):
    return compiled_ops.one_node(op, types, {}).nodes[0]


def test_an_operator_of_a_user_says_all_of_it_in_one_place(user_operators, monkeypatch):
    calls = Counter()

    def ref(x, y):
        calls["ref"] += 1
        return x * y + x + y
    mixed = tn.op("mixed", type=same_type, ref=ref, compute=lambda s, i, x, y: x(i) * y(i) + x(i) + y(i),
                  vjp=lambda g, z, x, y: (g * (y + 1), g * (x + 1)), elementwise=True, replace=True, exact=True,
                  commutative=True, counts=True, operations=1)
    x, y = tn.tensor([[1.0, 2.0], [3.0, 4.0]]), tn.tensor([5.0, 6.0])
    np.testing.assert_array_equal(tn.vmap(mixed, in_axes=(0, None))(x, y).numpy(), mixed(x, y).numpy())
    assert tn.debug.gradcheck(mixed, (x.astype(tn.float64), x.astype(tn.float64) + 1))

    node = node_of(mixed, x.type, x.type)
    assert is_light(mixed) and flops_of(node, {}) == 4 and not may_overflow(node)
    assert may_overflow(node_of(mixed, tn.ones((2, 2), dtype=tn.int32).type, tn.ones((2, 2), dtype=tn.int32).type))

    @tn.jit
    def twice(x, y):
        return mixed(x, y) - mixed(y, x)
    assert len(simplify(twice.graph(x, x)).nodes) <= len(twice.graph(x, x).nodes)

    if config().backend != "reference":         # machine code takes the place of the reference, which takes long
        monkeypatch.setattr(tier_up, "TIER_UP_SECONDS", 0.0)
        monkeypatch.setattr(tier_up, "SMALL_CALL_WORK", 1)
        large = tn.arange(400, dtype=tn.float32)
        expected = large * large + large + large
        for _ in range(12):
            np.testing.assert_array_equal(mixed(large, large).numpy(), expected.numpy())


def test_a_slow_function_of_a_user_is_one_program(user_operators, monkeypatch):
    if config().backend == "reference":
        pytest.skip("which makes no machine code")
    asked, make = [], compiled_ops._program
    monkeypatch.setattr(compiled_ops, "_program", lambda *key: asked.append(key[0].name) or make(*key))
    slow = tn.op("slow_cube", type=same_type_of_one, ref=lambda x: x ** 3, compute=lambda s, i, x: x(i) * x(i) * x(i),
                 numpy_work=10_000_000, replace=True)
    x = tn.tensor([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(slow(x).numpy(), x.numpy() ** 3)
    assert set(asked) == {"slow_cube"}


def same_type_of_one(x):
    return x


def test_what_moves_and_multiplies_is_read_off_the_definition(user_operators):
    view = tn.op("as_it_is", type=same_type_of_one, ref=lambda x: x, compute=lambda s, i, x: x(i), moves="view")
    assert is_cheap(node_of(view, tn.ones(3).type)) and flops_of(node_of(view, tn.ones(3).type), {}) == 0
    outer = tn.op("outer_product", type=lambda x, y: x.with_shape((*x.shape, *y.shape)), ref=np.multiply.outer,
                  compute=lambda s, i, x, y: x((i[0],)) * y((i[1],)), multiply_adds=lambda x, y, z: x[0] * y[0])
    assert multiply_adds(node_of(outer, tn.ones(3).type, tn.ones(5).type), {}) == 15


def test_a_decorated_function_says_how_it_is_batched(user_operators):
    @tn.op(batch="front", replace=True)
    def doubled(x):
        return x + x
    x = tn.ones((3, 2))
    assert "doubled" in str(tn.jit(tn.vmap(doubled)).graph(x))
    np.testing.assert_array_equal(tn.vmap(doubled)(x).numpy(), 2 * x.numpy())


def test_what_no_operator_has_is_refused():
    with pytest.raises(ArgumentError, match=r"no argument 'exakt'(.|\n)*exact"):
        tn.op("never", type=same_type_of_one, ref=np.sin, exakt=True)
    with pytest.raises(ArgumentError, match="batch='back' is unknown"):
        tn.op("never", type=same_type_of_one, ref=np.sin, batch="back")
    assert "never" not in OPS
