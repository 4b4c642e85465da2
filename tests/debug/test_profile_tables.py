"""Where the time of a call goes: by operator, line and module; as a trace and a roofline; of a script unchanged."""

import json
import re
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

import tenon as tn
from tenon import cli, nn, optim
from tenon.debug.chrome_trace import Trace
from tenon.debug.roofline import limits, points
from tenon.debug.script_profile import recorded_calls
from tenon.errors import ArgumentError
from tenon.observe import Event


class Net(nn.Module):
    def __init__(self):
        self.hidden, self.out = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.out(tn.relu(self.hidden(x)))


def training():
    tn.manual_seed(0)
    net = Net()
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit
    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step, net, (tn.ones((32, 64)), tn.tensor(np.arange(32) % 10))


@pytest.fixture(scope="module")
def found():
    step, _, inputs = training()
    return tn.debug.profile(step, *inputs)


def test_rows_add_up_to_the_whole(found):
    for key in ("operator", "line", "phase", "module"):
        rows = found.by(key)
        assert sum(row.seconds for row in rows) == pytest.approx(found.seconds)
        assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)
    with pytest.raises(ArgumentError, match="no rows by 'color'"):
        found.by("color")


def test_products_are_counted_where_they_are_written(found):
    counts = {row.key: row.operations for row in found.by("module")}
    forward, hidden = 2 * 32 * 64 * 128, 2 * 32 * 64 * 128      # with the gradient of its weight; of x none is wanted
    assert counts["Net.hidden"] == pytest.approx(forward + hidden, rel=0.1)
    assert {row.key for row in found.by("phase")} == {"forward", "backward", "update"}
    assert "matmul" in [row.key for row in found.by("operator")]


def test_modules_have_what_is_inside_of_them(found):
    text = found.table("module")
    assert re.search(r"^Net +\d", text, re.M) and re.search(r"^  hidden +\d", text, re.M)
    times = dict(re.findall(r"^ *(\w+) +([\d.]+) ms", text, re.M))
    assert float(times["Net"]) >= float(times["hidden"]) + float(times["out"]) - 0.002


def test_lines_have_what_they_call(found):
    source = found.source()
    inner = next(line for line in source.splitlines() if "self.out(tn.relu(self.hidden(x)))" in line)
    outer = next(line for line in source.splitlines() if "cross_entropy(net(x), y)" in line)
    assert 0 < float(inner.split()[0]) <= float(outer.split()[0])
    assert "optimizer.step()" in source and "ms" in source


def test_eager_lines_are_timed_and_the_call_is_undone():
    step, net, inputs = training()
    before = [p.numpy().copy() for p in net.parameters()]
    found = tn.debug.profile(step, *inputs, eager=True)
    assert all(np.array_equal(p.numpy(), old) and p.grad is None for p, old in zip(net.parameters(), before, strict=True))
    assert sys.gettrace() is None or found.eager
    line = next(line for line in found.source().splitlines() if "loss.backward()" in line)
    assert "ms" in line
    outer, inner = (max(seconds for (_, number), seconds in found.eager.items() if text in source_line(number))
                    for text in ("cross_entropy(net(x), y)", "self.out(tn.relu"))
    assert outer > inner > 0


def source_line(number):
    with open(__file__, encoding="utf-8") as file:
        return file.read().splitlines()[number - 1]


def test_steps_as_a_trace_have_a_track_for_each_thread(tmp_path):
    step, x = tn.jit(lambda x: tn.sum(tn.tanh(x @ x))), tn.ones((300, 300))
    tn.set_num_threads(2)
    found = tn.debug.profile(step, x)
    found.save(tmp_path / "steps.json")
    entries = json.loads((tmp_path / "steps.json").read_text())["traceEvents"]
    spans = [e for e in entries if e["ph"] == "X"]
    assert {e["tid"] for e in spans} == {0, 1}
    for track in (0, 1):
        mine = [e for e in spans if e["tid"] == track]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(mine))


def test_a_trace_has_captures_passes_and_memory(tmp_path):
    with tn.debug.trace(tmp_path / "run.json"):
        tn.jit(lambda x: tn.exp(x) * 1.2345 + tn.sum(x))(tn.ones(7))
    entries = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    names = {e["name"] for e in entries}
    assert {"capture", "compile", "first_run", "memory", "thread_name"} <= names
    assert all(e["dur"] > 0 for e in entries if e["ph"] == "X") and "fallback" not in names
    capture, compiled = (next(e for e in entries if e["name"] == name) for name in ("capture", "compile"))
    assert capture["ts"] + capture["dur"] <= compiled["ts"] + 1


def test_fields_of_any_name_are_told():
    heard = Trace()
    heard.hear(Event("graph", {"name": "f", "seconds": 3, "start": 1, "captured": object()}, time.perf_counter()))
    assert heard.entries[0]["args"] == {"name": "f", "seconds": 3, "start": 1}


def test_a_roofline_is_drawn_below_what_was_measured(tmp_path, found):
    pytest.importorskip("matplotlib")
    best = limits()
    assert best.operations > 1e8 and best.bytes > 1e8
    drawn = points(found.steps)
    assert any(point.intensity > 5 for point in drawn) and all(point.rate > 0 for point in drawn)
    found.save(tmp_path / "roof.html")
    text = (tmp_path / "roof.html").read_text()
    assert text.count("<circle") == len(drawn) and "GFLOP/s" in text and "matmul" in text
    found.save(tmp_path / "roof.png")
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ArgumentError, match=r"\.html, \.png or \.json"):
        found.save(tmp_path / "roof.txt")


SCRIPT = """\
import sys
import tenon as tn

@tn.jit
def step(x):
    return tn.tanh(x @ x)

if __name__ == "__main__":
    x = tn.ones((16, 16))
    for _ in range(int(sys.argv[1])):
        x = step(x)
    print("done", sys.argv[1:])
    sys.exit(0)
"""


def test_a_script_is_profiled_as_it_is(tmp_path, capsys):
    (tmp_path / "train.py").write_text(SCRIPT)
    argv = sys.argv[:]
    options = ["--by", "operator,module,step,source", "--trace", str(tmp_path / "t.json")]
    assert cli.main(["profile", *options, str(tmp_path / "train.py"), "5"]) == 0
    printed = capsys.readouterr().out
    assert "done ['5']" in printed and re.search(r"^step +5 ", printed, re.M) and sys.argv == argv
    assert "Time by operator" in printed and "matmul" in printed and "return tn.tanh(x @ x)" in printed
    entries = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(e["name"] == "step" for e in entries) == 5
    assert "recorded" not in tn.jit(lambda x: x).__call__.__qualname__


def test_mistakes_in_what_is_profiled_are_messages(tmp_path, capsys):
    (tmp_path / "bad.py").write_text("x = 1 / 0\n")
    (tmp_path / "left.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "none.py").write_text("print('hello')\n")
    assert cli.main(["profile", str(tmp_path / "bad.py")]) == 1
    assert "ZeroDivisionError" in (err := capsys.readouterr().err) and "bad.py:1" in err
    assert cli.main(["profile", str(tmp_path / "left.py")]) == 1
    assert "left with 3" in capsys.readouterr().err
    assert cli.main(["profile", str(tmp_path / "none.py")]) == 0
    assert "no jitted function was called" in capsys.readouterr().out
    assert cli.main(["profile", "--by", "color", str(tmp_path / "none.py")]) == 1
    assert "no table by 'color'" in capsys.readouterr().err
    assert cli.main(["profile", str(tmp_path / "nowhere.py")]) == 1
    assert cli.main(["profile"]) == 1


def test_counting_calls_costs_little():
    step, x = tn.jit(lambda x: x + 1), tn.ones(3)
    for _ in range(100):
        step(x)

    def seconds():
        started = time.process_time()
        for _ in range(2000):
            step(x)
        return time.process_time() - started
    alone = min(seconds() for _ in range(5))
    with recorded_calls() as calls:
        counted = min(seconds() for _ in range(5))
    assert (counted - alone) / 2000 < 5e-6      # seconds: 5 % of a step of a tenth of a millisecond
    assert next(iter(calls.values())).count == 10000


def test_the_lines_of_a_loop_that_is_one_kernel_have_their_parts_of_its_time():
    @tn.jit
    def grow(x):
        while x.sum() < 1000.0:
            y = tn.sin(x)
            x = x + tn.exp(y * 0.01)
        return x
    profile = tn.debug.profile(grow, tn.ones(64))
    assert [step.name for step in profile.steps].count("while_loop") == 1
    first = grow.function.__code__.co_firstlineno
    lines = {int(str(cost.key).rpartition(":")[2]) - first for cost in profile.by("line")}
    assert {2, 3, 4} <= lines, lines
    assert {"sin", "exp", "sum"} <= {cost.key for cost in profile.by("operator")}
