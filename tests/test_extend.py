"""What users add: a kernel, a pass, a backend; each is used, and each can be told apart from what was there."""

import re

import numpy as np
import pytest

import tenon as tn
from tenon import pipeline
from tenon.backends.reference import ReferenceProgram
from tenon.config import config
from tenon.errors import ArgumentError, TenonError
from tenon.extend import InvalidPass
from tenon.graph.build import copy, rebuild
from tenon.graph.kernels import UserKernel, add_kernel, forget_kernel
from tenon.graph.op import OPS
from tenon.graph.validate import ChangedValue
from tenon.program.backend_interface import Backend
from tenon.records import replace


@pytest.fixture
def counting_exp():
    calls = []

    def run(x):
        calls.append(x.shape)
        return np.exp(x)
    kernel = UserKernel(OPS["exp"], "cpu", run, lambda x: x.dtype is tn.float64)
    add_kernel(kernel)
    tn.tensor(0)
    yield calls
    forget_kernel(kernel)


def test_a_kernel_is_used_eagerly_and_compiled_where_it_claims(counting_exp):
    x = tn.asarray(np.linspace(0, 1, 5))
    np.testing.assert_allclose(tn.exp(x).numpy(), np.exp(x.numpy()))
    assert len(counting_exp) == 1
    compiled = tn.jit(lambda x: tn.exp(x * 2) + 1)
    np.testing.assert_allclose(compiled(x).numpy(), np.exp(x.numpy() * 2) + 1)
    assert len(counting_exp) == 2
    compiled(x.astype(tn.float32))
    assert len(counting_exp) == 2


def test_a_kernel_has_the_gradient_of_its_operator(counting_exp):
    gradient = tn.grad(lambda x: tn.exp(x).sum())(tn.asarray(np.ones(2)))
    np.testing.assert_allclose(gradient.numpy(), np.full(2, np.e))


def test_a_pass_runs_in_the_pipeline():
    @tn.graph_pass(before="simplify")
    def doubles_sines(graph):
        """sin(x) becomes 2 sin(x): wrong, and therefore seen."""
        return rebuild(graph, lambda node, inputs: tn.sin(*inputs) * 2.0 if node.op is tn.sin else copy(node, inputs))
    try:
        assert float(tn.jit(lambda x: tn.sin(x))(tn.tensor(1.0))) == pytest.approx(2 * np.sin(1.0))
        with pytest.raises(ArgumentError, match="exists already"):
            tn.graph_pass(doubles_sines)
    finally:
        tn.remove_pass(doubles_sines)
    assert float(tn.jit(lambda x: tn.sin(x))(tn.tensor(1.0))) == pytest.approx(np.sin(1.0))
    with pytest.raises(ArgumentError, match="no pass named 'nowhere'"):
        tn.graph_pass(lambda graph: graph, before="nowhere")
    for unknown in ("doubles_sines", doubles_sines, "fuse", "nothing"):
        with pytest.raises(ArgumentError, match=r"is no pass that tn.graph_pass added(.|\n)*added are: none"):
            tn.remove_pass(unknown)


@pytest.fixture
def passing():
    """`tn.graph_pass`, whose passes are taken out again."""
    names = []

    def add(function, **options):
        names.append(function.__name__)
        return tn.graph_pass(function, **options)
    yield add
    for name in names:
        tn.remove_pass(name)


@pytest.fixture
def checking(monkeypatch):
    """Set TENON_CHECK."""
    def check(words):
        monkeypatch.setenv("TENON_CHECK", words)
        config.cache_clear()
    yield check
    monkeypatch.undo()
    config.cache_clear()


@pytest.mark.parametrize("before", ["simplify", "fuse"])
@pytest.mark.parametrize(("returned", "said"), [
    (lambda graph: None, "returned NoneType"),
    (lambda graph: replace(graph, results=()), r"made \(f32\[3\]\) -> \(\) of \(f32\[3\]\) -> \(f32\[3\]\)"),
    (lambda graph: rebuild(graph, lambda node, inputs: tn.cast(inputs[0], dtype=tn.float64)), r"f64\[3\]"),
], ids=["nothing", "fewer results", "another type"])
def test_a_pass_must_return_a_function_of_the_same_type(passing, returned, said, before):
    def changing(graph):
        return returned(graph)
    passing(changing, before=before)
    with pytest.raises(InvalidPass, match=f"the pass changing .*{said}"):
        tn.jit(lambda x: tn.sin(x))(tn.ones(3))


@pytest.mark.parametrize("before", ["simplify", "fuse"])
@pytest.mark.parametrize("constant", [False, True])
def test_a_pass_of_a_user_is_compared_with_the_reference_on_request(passing, checking, constant, before):
    """Also where it meets the part of a graph that is computed from constants alone."""
    def doubles_sines(graph):
        return rebuild(graph, lambda node, inputs: tn.sin(*inputs) * 2.0 if node.op is tn.sin else copy(node, inputs))
    passing(doubles_sines, before=before)
    checking("passes")
    weight = tn.ones(3) * 1
    with pytest.raises(ChangedValue, match="the pass doubles_sines changes a value"):
        tn.jit(lambda x: tn.sin(weight) * x if constant else tn.sin(x))(tn.ones(3))


def test_a_backend_is_a_name():
    seen = []

    def compile(graph):
        seen.append(graph.name)
        return ReferenceProgram(graph)
    tn.register_backend(Backend("seen", compile))
    try:
        graph = tn.jit(lambda x: x + 1).graph(tn.ones(3))
        np.testing.assert_array_equal(pipeline.compile(graph, backend="seen").run([np.zeros(3, np.float32)])[0], np.ones(3))
        assert seen == ["function"]
    finally:
        del pipeline.BACKENDS["seen"]


def test_mistakes_are_told():
    with pytest.raises(ArgumentError, match="no operator named 'matmull'"):
        tn.kernel("matmull")
    with pytest.raises(ArgumentError, match="no device named 'tpu'"):
        tn.kernel("exp", device="tpu")


WRONG = [
    (lambda x: x.sum(), "gave an array of shape []"), (lambda x: x.astype("float64") * 1j, "elements of type complex128"),
    (lambda x: (x, x), "gave an array of shape [2, 3]"),
]


@pytest.mark.parametrize(("ref", "message"), WRONG)
def test_what_a_users_code_gives_is_what_its_type_rule_says(ref, message):
    shaped = tn.op("shaped", type=lambda x: x, ref=ref, replace=True)
    for call in (shaped, tn.jit(lambda x: shaped(x) * 2)):
        for _ in range(3):
            with pytest.raises(TenonError, match=f"shaped: its reference .*{re.escape(message)}.*type rule says f32"):
                call(tn.ones(3))
    tn.kernel("sinh")(ref)
    try:
        with pytest.raises(TenonError, match=f"sinh: its kernel .*{re.escape(message)}"):
            tn.sinh(tn.ones(3))
    finally:
        tn.remove_kernel("sinh", ref)


# ---------------------------------------------------------------- handles

def test_a_kernel_is_taken_out_by_its_handle_and_by_with():
    x = tn.tensor(0.5)
    kernel = tn.kernel("sinh")(lambda x: np.full_like(x, 7.0))
    assert float(tn.sinh(x)) == 7.0 and float(kernel(np.float32(1.0))) == 7.0
    kernel.remove()
    kernel.remove()                             # nothing is left to remove
    assert float(tn.sinh(x)) == pytest.approx(np.sinh(0.5))
    with pytest.raises(ZeroDivisionError), tn.kernel("sinh")(lambda x: np.full_like(x, 8.0)):
        assert float(tn.sinh(x)) == 8.0
        raise ZeroDivisionError
    assert float(tn.sinh(x)) == pytest.approx(np.sinh(0.5))


def test_a_pass_is_in_the_pipeline_as_long_as_its_block():
    def leave_alone(graph):
        return graph
    with tn.graph_pass(leave_alone, before="simplify") as added:
        assert "leave_alone" in pipeline.OPTIMIZE and added.__name__ == "leave_alone"
        with pytest.raises(ArgumentError, match="exists already"):
            tn.graph_pass(added)
    assert "leave_alone" not in pipeline.OPTIMIZE
    again = tn.graph_pass(leave_alone)
    added.remove()                              # of the first one, which is out already
    assert "leave_alone" in pipeline.OPTIMIZE
    again.remove()
    assert "leave_alone" not in pipeline.PASSES


def test_a_backend_is_known_as_long_as_its_block():
    with tn.register_backend(Backend("for_a_while", ReferenceProgram)) as handle:
        assert "for_a_while" in pipeline.BACKENDS and "for_a_while" in repr(handle)
        with pytest.raises(ArgumentError, match="is no function"):
            handle()
    assert "for_a_while" not in pipeline.BACKENDS
