"""What comes from anybody as the text of a graph is refused, or compiles and runs.

Single texts, each the smallest that was once accepted and then read what it should not; and random ones.
`python tests/robustness/mutated_graphs.py --count 100000` tries more.
"""

import time

import numpy as np
import pytest

from robustness import mutated_graphs
from robustness.graph_texts import golden, operators
from tenon.errors import GraphError
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.pipeline import compile

REFUSED = {
    "a body wider than its operand": (
        """
def f(x: f32[4]):
    def body(p0: f32[4096]):
        v0: f32[4096] = multiply(p0, 2.0)
        return v0
    v0: f32[4096] = fused(x, body=body)
    return v0
""", "the body takes (f32[4096]), and is given (f32[4])"),
    "a call of a body of other types": (
        """
def f(x: f32[4]):
    def body(p0: i64[4]):
        return p0
    v0: i64[4] = call(x, body=body)
    return v0
""", "the body takes (i64[4])"),
    "a stack from outside": (
        """
def f(s: stack):
    v0: tuple[stack, f32[4]] = pop(s, dtypes=(f32,), shapes=((4,),))
    return v0[1]
""", "a parameter is a stack"),
    "a stack made of a number": (
        """
def f(x: i64):
    v0: stack = cast(x, dtype=stack)
    v1: bool = is_empty(v0)
    return v1
""", "a stack is none"),
    "a token made of a number": (
        """
def f(x: bool):
    v0: token = cast(x, dtype=token)
    v1: bool = logical_not(x, after=[v0])
    return v1
""", "a token is none"),
    "an order that is no token": (
        """
def f(x: f32):
    v0: f32 = negative(x)
    v1: f32 = negative(x, after=[v0])
    return v1
""", "waits for a value that is no token"),
    "attributes of another kind": (
        """
def f(x: f32[4]):
    v0: f32[4] = full_op(f32(1.0), shape=4)
    return v0
""", "'shape'"),
    "a number that no integer type holds": (
        """
def f():
    v0: i64[4] = arange(start=9223372036854775808, step=1, size=4, dtype=i64)
    return v0
""", "'start'"),
    "an attribute in another form": (
        """
def f(x: f32[4, 3]):
    v0: f32[4] = sum(x, axis=(-1,), keepdims=False, dtype=f32)
    return v0
""", "their one form is axis=(1,)"),
    "a stride of nothing": (
        """
def f(x: f32[2, 7]):
    v0: f32[2, 3, 3] = windows(x, kernel=(3,), stride=(0,), padding=((1, 0),), dilation=(1,))
    return v0
""", "stride and dilation must be at least 1"),
    "element types that differ": (
        """
def f(x: f32[4], y: f64[4]):
    v0: f32[4] = add(x, y)
    return v0
""", "is given float32"),
    "more places than there are": (
        """
def f(x: f32[4]):
    v0: i64[9] = first_places(x, k=9, axis=0, descending=True)
    return v0
""", "there are no 9 places"),
    "a remainder by nothing": (
        """
def f(x: u64[2]):
    v0: i64[3] = random_integers(x, low=0, count=0, shape=(3,), stream=0)
    return v0
""", "there are no 0 integers"),
    "a device that is none": (
        "def f(x: f32[3]):\n    v0: f32[3] = to_device(x, device='B + cpu')\n    return v0", "there is no device 'B + cpu'"),
    "a negative size": ("def f(x: f32[-3]):\n    return x", "sizes are whole numbers from 0"),
    "a size of which nothing tells": ("def f(x: f32[(B)//(2)]):\n    return x", "follows from no parameter's shape"),
    "more than any memory holds": ("def f(x: f32[4611686018427387904]):\n    return x", "larger than any memory"),
    "a name that stands for two": ("def f(x: f32, x: i64):\n    return x", "line 1"),
    "a value made twice": ("def f(x: f32):\n    v0: f32 = exp(x)\n    v0: f32 = log(x)\n    return v0", "line 3"),
    "a division by no size": ("def f(x: f32[B // 0]):\n    return x", "divided by 0"),
    "a number of many digits": ("def f(x: f32):\n    v0: f32 = add(x, 0x" + "f" * 9000 + ")\n    return v0", "64 bits"),
    "what is nested too deeply": ("def f(x: f32):\n    return " + "(" * 150 + "x" + ",)" * 150, "nested too deeply"),
    "branches that are one graph, level by level": (
        "".join(f"{'    ' * k}def {'f' if k == 0 else 'b'}(x: f32, c: bool):\n" for k in range(25)) + "    " * 25 + "return x\n"
        + "".join(f"{'    ' * k}v0: f32 = cond(c, x, c, true=b, false=b)\n{'    ' * k}return v0\n" for k in range(24, 0, -1)),
        "held again"),
    "a size that grows with each level": (
        "def f(x: f32[" + "((" * 20 + "B" + " + C)*(B + 1))//3" * 20 + "]):\n    return x", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name):
    text, said = REFUSED[name]
    before = time.monotonic()
    with pytest.raises(GraphError) as error:
        verify(parse_graph(text.strip()))
    assert said in str(error.value)
    assert time.monotonic() - before < 5


POPS = {
    "no stack": ("v1: stack = empty_stack()", "dtypes=(f32,), shapes=((4,),)", "f32[4]"),
    "another shape": ("v1: stack = push(v0, x)", "dtypes=(f32,), shapes=((40,),)", "f32[40]"),
    "another type": ("v1: stack = push(v0, x)", "dtypes=(i32,), shapes=((4,),)", "i32[4]"),
    "more values": ("v1: stack = push(v0, x)", "dtypes=(f32, f32), shapes=((4,), (4,))", "f32[4], f32[4]"),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", POPS)
def test_taking_what_was_not_pushed_is_an_error_of_the_run(name, backend):
    made, attributes, types = POPS[name]
    program = compile(verify(parse_graph(f"""def f(x: f32[4]):
    v0: stack = empty_stack()
    {made}
    v2: tuple[stack, {types}] = pop(v1, {attributes})
    return v2[1]""")), backend)
    with pytest.raises(GraphError, match="the stack is empty, or holds other types on top"):
        program.run([np.zeros(4, np.float32)])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_that_takes_too_often_ends(threads, request):
    if threads == 2:
        request.getfixturevalue("two_threads")
    program = compile(verify(parse_graph("""def f(x: f32[300, 300], n: i64):
    def more(s: stack, y: f32[300, 300], k: i64):
        v0: bool = greater(k, 0)
        return v0
    def turn(s: stack, y: f32[300, 300], k: i64):
        v0: tuple[stack, f32[300, 300]] = pop(s, dtypes=(f32,), shapes=((300, 300),))
        v1: f32[300, 300] = matmul(y, v0[1])
        v2: i64 = subtract(k, 1)
        return v0[0], v1, v2
    v0: stack = empty_stack()
    v1: stack = push(v0, x)
    v2: stack = push(v1, x)
    v3: tuple[stack, f32[300, 300], i64] = while_loop(v2, x, n, constants=0, condition=more, body=turn)
    return v3[1]""")))
    x = np.eye(300, dtype=np.float32)
    assert np.array_equal(program.run([x, np.asarray(2)])[0], x)
    with pytest.raises(GraphError, match="the stack is empty"):
        program.run([x, np.asarray(3)])
    assert np.array_equal(program.run([x, np.asarray(1)])[0], x)


SYMBOLIC = """def f(x: f32[B], y: f32[C]):
    v0: f32[6] = slice(x, start=(0,), stop=(6,), step=(1,))
    v1: f32[B - 4] = slice(x, start=(4,), stop=(B,), step=(1,))
    return v0, v1"""


@pytest.mark.parametrize("size", [2, 5])
def test_what_a_graph_asks_of_sizes_is_asked_in_each_run(size):
    program = compile(verify(parse_graph(SYMBOLIC)))
    x = np.arange(9, dtype=np.float32)
    assert [r.tolist() for r in program.run([x, x])] == [x[:6].tolist(), x[4:].tolist()]
    with pytest.raises(GraphError, match="slice"):
        program.run([x[:size], x])


def test_numbers_are_operands_of_bodies_too():
    program = compile(verify(parse_graph("""def f(x: f32[4]):
    def body(p0: f32, p1: f32[4]):
        v0: f32[4] = broadcast_to(p0, shape=(4,))
        v1: f32[4] = multiply(v0, p1)
        return v1
    v0: f32[4] = fused(3.0, x, body=body)
    return v0""")))
    assert program.run([np.ones(4, np.float32)])[0].tolist() == [3.0] * 4


@pytest.mark.parametrize("call", ["local_response_norm(x, size=2147483648, alpha=0.5, beta=0.75, k=1.0)",
                                  "mvlgamma(x, p=2147483648)"])
def test_an_operator_that_many_would_make_is_refused_at_once(call):
    with pytest.raises(GraphError, match="more than 10000 operators"):
        verify(parse_graph(f"def f(x: f32[2, C]):\n    v0: f32[2, C] = {call}\n    return v0"))


@pytest.mark.parametrize("call", ["clip(x)", "clip(x, 0.0)"])
def test_an_input_that_may_be_left_out_is_written_as_none(call):
    with pytest.raises(GraphError, match=r"takes .*, and is given"):
        verify(parse_graph(f"def f(x: f32[2]):\n    v0: f32[2] = {call}\n    return v0"))


def test_mutated_texts_are_refused_or_run(seed):
    texts = [*golden(), *(print_graph(graph, locations=False) for graph in operators())]
    found = mutated_graphs.findings(100_000, seed, share=0.15, seconds=20, texts=texts)
    assert not found.bad
    assert found.counts["refused"] > 20 and found.counts["ran"] > 0, found.counts
