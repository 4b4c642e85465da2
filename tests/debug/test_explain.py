"""`tn.explain` tells a call's fate before anything is compiled: lines, guards, constants, reasons."""

import types

import pytest

import tenon as tn
from tenon.observe import subscribe

SCALE = 2.0
X = tn.tensor([1.0, 2.0, 3.0])


def helper(x):
    if SCALE > 1:
        x = tn.relu(x) * SCALE
    return x


def model(x, times=2, mode="up"):
    y = helper(x)
    n = times * 2
    return y * n + x.sum()




def marked(explanation, mark):
    return {line.text.strip(): line.operators for line in explanation.source if line.mark == mark}


def test_the_lines_of_the_graph_are_marked_with_their_operators():
    told = tn.explain(tn.jit(model), X)
    assert marked(told, "graph") == {"x = tn.relu(x) * SCALE": "relu, multiply",
                                     "return y * n + x.sum()": "multiply, sum, broadcast_to, add"}
    assert {"n = times * 2", "y = helper(x)", "if SCALE > 1:"} <= marked(told, "python").keys()


def test_guards_constants_and_what_is_captured_again_are_told():
    text = str(tn.explain(tn.jit(model), X, times=3))
    assert text.startswith("model: one graph\ncapture 1: model(x: f32[3]), 6 nodes\n")
    assert "SCALE is 2.0" in text and "baked in: times=3" in text
    assert "captured again for: another type of x (another size becomes a symbol); another value of times" in text


def test_it_tells_what_capturing_and_compiling_took_once_they_are_done():
    f = tn.jit(lambda x: tn.tanh(x) * 2.3456)
    told = tn.explain(f, X)
    assert [stage for stage, seconds in told.seconds.items() if seconds] == ["capture"]
    f(X)
    assert all(seconds > 0 for seconds in told.seconds.values()) and tn.explain(f).seconds == told.seconds
    f(tn.ones(7))
    assert tn.explain(f).seconds["capture"] > told.seconds["capture"]


def test_nothing_is_run_or_compiled():
    seen = []
    stop = subscribe(lambda event: seen.append(event.name))
    log = []

    @tn.jit
    def f(x):
        log.append(1)
        return tn.tanh(x) * 1.2345
    try:
        tn.explain(f, X)
    finally:
        stop()
    assert log == [] and not {"compile", "kernel", "run", "machine_code"} & set(seen)
    assert [c for r in f.records.values() for c in r.captures if "program" in vars(c)] == []
    assert f(X).tolist() == pytest.approx((tn.tanh(X) * 1.2345).tolist()) and log == [1]


def test_symbols_and_conditions_on_sizes_are_told():
    @tn.jit
    def f(x):
        return x * 2 if x.shape[0] > 3 else x
    tn.explain(f, X)
    text = str(tn.explain(f, tn.ones(5)))
    assert "f(x: f32[N0])" in text and "holds for sizes with: 3 < N0 is True" in text
    assert "N0 of 0 or 1; sizes that compare otherwise" in text


def test_a_function_that_raises_is_told_so_and_can_be_asked_again():
    @tn.jit
    def f(x, by):
        return x / (1 / by)
    assert str(tn.explain(f, X, 0)) == "f: raises ZeroDivisionError: division by zero"
    assert str(tn.explain(f, X, 1)).startswith("f: one graph")


def test_html_holds_the_same_lines():
    html = tn.explain(tn.jit(model), X)._repr_html_()
    assert "relu, multiply" in html and "#dfd" in html and "<script" not in html


def test_what_needs_python_is_told_with_its_line():
    @tn.jit
    def f(x):
        y = x * 2
        input(y.shape)
        return y
    told = tn.explain(f, X)
    assert marked(told, "stop") == {"input(y.shape)": "needs Python"} and marked(told, "graph") == {"y = x * 2": "multiply"}
    assert "f: runs in 1 piece" in str(told) and "^^^" in str(told)
    with pytest.raises(tn.errors.CaptureError, match="input"):
        tn.jit(f.function, fullgraph=True)(X)


def test_a_function_without_source_is_explained_without_lines():
    names = {"tn": tn}
    exec("def f(x):\n    return tn.exp(x) * 2\n", names)
    text = str(tn.explain(tn.jit(names["f"]), X))
    assert "f: one graph" in text and "2 nodes" in text


def test_why_there_are_further_captures_is_told_with_both_values():
    holder = types.SimpleNamespace(mode="a")

    def f(x, flip=False):
        return -x if flip or holder.mode == "b" else x
    jitted = tn.jit(f)
    jitted(X)
    jitted(X, flip=True)
    holder.mode = "b"
    jitted(X)
    jitted(X.astype(tn.float64))
    told = str(tn.explain(jitted))
    assert "captured since the arguments are nested otherwise" in told
    assert "mode is 'b', and was 'a'" in told
    assert "captured since x is a tensor of float64 with 1 axes, and was a tensor of float32 with 1 axes" in told

    numbers = tn.jit(lambda x, k: x[:k])
    for k in (1, 2, 3):
        numbers(X, k)
    assert "k is 2, and was 1" in str(tn.explain(numbers))


def test_a_function_without_jit_is_explained_for_a_call():
    def f(x):
        return x * 2
    assert str(tn.explain(f, X)).startswith("f: one graph") and "multiply" in str(tn.explain(f, X))
    assert "runs with graph breaks" in str(tn.explain(lambda x: sorted(x.tolist()), X))
    for wrong in (3, f):
        with pytest.raises(tn.errors.ArgumentError, match="a function and arguments"):
            tn.explain(wrong)


def test_guards_are_those_of_the_program_and_not_of_tenons_operators():
    net = tn.nn.Linear(4, 3)
    word = "a"
    step = tn.jit(lambda x: (net(x) * len(word)).sum())
    step(tn.ones((2, 4)))
    told = next(line for line in tn.explain(step).lines if "guarded:" in line)
    assert "<word> is 'a'" in told and "in_features is 4" in told
    assert "attributes of" not in told and "linear." not in told


def test_why_a_tensor_from_outside_made_another_capture() -> None:
    w = tn.tensor([1.0, 2.0], requires_grad=True)

    @tn.jit
    def step():
        loss = (w * w).sum()
        loss.backward()
        return loss
    step()
    step()
    assert "captured since a tensor f32[2] from outside has a gradient, and had none" in str(tn.explain(step))
    w.grad = None
    w.requires_grad = False
    other = tn.jit(lambda: w * 2)
    other()
    w.requires_grad = True
    other()
    assert "from outside requires a gradient, and did not" in str(tn.explain(other))
