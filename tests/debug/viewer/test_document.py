"""What `tn.debug.view` knows of a call: where nodes come from, what passes did, what kernels and memory there are."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from debug.viewer.two_blocks import Net, training_step
from tenon import cli
from tenon.debug.viewer.document import document_of
from tenon.errors import ArgumentError


@pytest.fixture(scope="module")
def seen():
    step, net, inputs = training_step()
    before = [p.numpy().copy() for p in net.parameters()]
    data = document_of(step, inputs, {}, code=False)
    assert all(np.array_equal(p.numpy(), old) for p, old in zip(net.parameters(), before, strict=True))
    return json.loads(json.dumps(data))


def applied(data):
    """The nodes by number after every pass."""
    nodes = {n["id"]: n for n in data["nodes"]}
    yield nodes
    for one in data["passes"]:
        if one["changed"]:
            nodes = {k: n for k, n in nodes.items() if k not in set(one["removed"])}
            nodes.update((n["id"], n) for n in (*one["added"], *one["changed_nodes"], *one["moved"]))
            assert set(nodes) == set(one["order"])
            yield nodes


def test_nodes_know_module_phase_and_line(seen):
    where = Counter((o["phase"], o["path"]) for o in seen["origins"])
    assert {"Net.blocks.0.inner", "Net.blocks.1.norm", "Net.out"} <= {path for _, path in where}
    assert where["forward", "Net.out"] and where["backward", "Net.out"]
    assert where["update", "Adam.blocks.0.inner.weight"]
    lines = seen["files"][seen["origins"][0]["file"]]["lines"]
    inner = next(o for o in seen["origins"] if o["path"] == "Net.blocks.0.inner")
    assert "self.inner(" in lines[inner["line"] - 1]
    assert any("net(x)" in lines[line - 1] for _, line in inner["stack"])


def test_gradients_belong_to_the_lines_of_the_forward_nodes(seen):
    lines = seen["files"][0]["lines"]
    texts = {lines[o["line"] - 1].strip() for o in seen["origins"] if o["phase"] == "backward"}
    assert "return x + tn.tanh(self.inner(self.norm(x)))" in texts


def test_every_pass_leads_from_the_graph_before_to_the_one_behind(seen):
    *_, last = applied(seen)
    changed = [one for one in seen["passes"] if one["changed"]]
    assert {"expand", "fuse"} <= {one["name"] for one in changed}
    top = [n for n in last.values() if n["parent"] is None]
    assert len(top) == changed[-1]["nodes"]
    for nodes in applied(seen):
        for n in nodes.values():
            assert all(x[0] in nodes for x in n["inputs"] if isinstance(x, list) and x[0] >= 0)
            assert n["parent"] is None or n["parent"][0] in nodes


def test_rules_that_a_pass_applied_are_told():
    data = document_of(lambda x: tn.exp(x * 1.0) - 0, (tn.ones(3),), {}, times=False, code=False)
    rules = {r["rule"]: r for one in data["passes"] for r in one["rules"] if one["name"] == "simplify"}
    (times_one,) = (r for text, r in rules.items() if text == "rule(lambda x: x * 1, lambda x: x)")
    assert times_one["where"].startswith("simplify.py:")
    assert [data["nodes"][k]["op"] for k in times_one["origins"]] == ["multiply"]


def test_what_fusion_takes_into_a_kernel_moves_and_stays_the_same_node(seen):
    fuse = next(one for one in seen["passes"] if one["name"] == "fuse")
    kernels = {n["id"] for n in fuse["added"] if n["op"] == "fused"}
    assert len(fuse["moved"]) > len(kernels) > 0
    assert all(n["parent"][0] in kernels and n["parent"][1] == "body" for n in fuse["moved"])


def test_the_time_and_work_of_steps_is_shared_out_among_captured_nodes(seen):
    steps, origins = seen["steps"], seen["origins"]
    assert all(s["seconds"] > 0 for s in steps)
    assert sum(o["seconds"] for o in origins) == pytest.approx(sum(s["seconds"] for s in steps), rel=1e-2)
    out = [o for o in origins if o["path"] == "Net.out" and o["phase"] == "forward"]
    assert sum(o["flops"] for o in out) == pytest.approx(2 * 8 * 12 * 3 + 8 * 3, rel=0.5)
    assert all(s["node"] >= 0 and seen["kernels"][s["kernel"]]["loops"] for s in steps if s["kind"] == "kernel")


def test_places_of_the_arena_do_not_overlap_while_they_live(seen):
    places = seen["arena"]["places"]
    assert places and max(p["offset"] + p["bytes"] for p in places) <= seen["arena"]["size"]
    for k, a in enumerate(places):
        for b in places[:k]:
            apart = a["last"] < b["first"] or b["last"] < a["first"]
            assert apart or a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]


def test_the_tensor_that_sets_the_peak_of_memory_is_named_first():
    def f(x):
        wide = tn.exp(x @ tn.ones((16, 4096)))
        return tn.tanh(wide @ tn.ones((4096, 16))).sum()
    text = tn.debug.view(tn.jit(f), tn.ones((8, 16)), times=False, code=False).memory().splitlines()
    assert "most at step" in text[0]
    assert "f32[8, 4096]" in text[1] and "test_document.py:" in text[1] and "forward" in text[1]
    assert "nothing lies" in tn.debug.view(lambda x: x, tn.ones(3)).memory()


def test_a_pass_that_only_orders_nodes_changes_none(seen):
    ordered = [one for one in seen["passes"] if one["name"] == "schedule_nodes" and one["changed"]]
    assert all(not one["added"] and not one["removed"] and not one["moved"] for one in ordered)


def test_values_of_nodes_are_told_when_asked_for():
    def f(x):
        y = tn.log(x)
        for _ in range(3):
            y = y + 1
        while y.sum() < 100:
            y = y * 2
        return y
    data = document_of(tn.jit(f), (tn.tensor([1.0, 0.0, 2.0]),), {}, times=False, code=False)
    assert data["values"] == {}
    data = document_of(tn.jit(f), (tn.tensor([1.0, 4.0, 2.0]),), {}, times=False, code=False, values=True)
    of = {n["op"]: data["values"].get(str(n["id"])) for n in data["nodes"]}
    assert "0 to 1.386" in of["log"]["outputs"][0] and of["log"]["bad"] == 0 and of["multiply"]["turns"] > 1
    data = document_of(tn.jit(tn.log), (tn.tensor([1.0, 0.0, -1.0]),), {}, times=False, code=False, values=True)
    assert next(iter(data["values"].values()))["bad"] == 2


def test_params_have_their_names(seen):
    names = {p["name"]: p for p in seen["params"]}
    assert names["blocks.0.inner.weight"]["type"] == "f32[12, 12]" and names["x"]["kind"] == "argument"
    assert names["exp_avg of out.bias"]["bytes"] == 12


def test_branches_and_loops_have_their_nodes_inside():
    def f(x):
        if x.sum() > 0:
            x = x * 2
        while x.sum() < 100:
            x = x + tn.exp(x)
        return x
    data = document_of(tn.jit(f), (tn.ones(5),), {}, times=False, code=False)
    inside = {(n["parent"][1], n["op"]) for n in data["nodes"] if n["parent"]}
    assert ("body", "exp") in inside and any(attribute != "body" for attribute, _ in inside)
    owner = next(n for n in data["nodes"] if n["graphs"].get("body"))
    assert owner["graphs"]["body"]["params"] and owner["graphs"]["body"]["results"]


def test_constants_of_a_network_in_use_are_cut_off_in_a_pass_of_its_own():
    net = Net()
    f = tn.jit(lambda x: net(x))
    with tn.no_grad():
        data = document_of(f, (tn.ones((4, 12)),), {}, code=False)
    assert "cut_constants" in [one["name"] for one in data["passes"]]
    assert data["steps"] and {n["id"]: n for n in data["nodes"]}
    assert any(o["path"] == "Net.blocks.1.inner" and o["seconds"] for o in data["origins"])


def test_symbolic_sizes_are_told_and_costs_are_those_of_the_call():
    f = tn.jit(lambda x: tn.exp(x) * 2)
    for size in (5, 9):
        f(tn.ones((size, 3)))
    data = document_of(f, (tn.ones((9, 3)),), {}, code=False)
    assert data["sizes"] == {"N0": 9} and data["nodes"][0]["types"] == ["f32[N0, 3]"]
    assert data["nodes"][0]["bytes"] == [108]


def test_numbers_that_change_from_call_to_call_are_no_obstacle():
    net = Net()
    f = tn.jit(lambda x, scale: net(x) * scale)
    for scale in (1.0, 2.0, 3.0):
        f(tn.ones((2, 12)), scale)
    data = document_of(f, (tn.ones((2, 12)), 7.0), {}, code=False)
    assert any(o["path"] == "Net.out" for o in data["origins"]) and data["steps"][0]["seconds"] > 0


def test_a_function_that_runs_with_graph_breaks_says_why():
    data = document_of(tn.jit(lambda x: x * np.asarray(x).sum()), (tn.ones(3),), {})
    assert data["nodes"] == [] and data["fallbacks"][0]["what"] and data["fallbacks"][0]["line"]


@pytest.mark.parametrize("function", [lambda x: tn.unique(x), lambda x: x[x > 0] * 2])
def test_sizes_that_the_data_decide_show_the_captured_graph(function):
    data = document_of(tn.jit(function), (tn.tensor([1.0, 2.0, 2.0]),), {})
    assert data["name"] and (data["nodes"] or data["fallbacks"])


def test_functions_without_modules_nodes_and_elements():
    assert document_of(lambda x: x, (tn.ones(3),), {})["nodes"] == []
    data = document_of(lambda x: tn.exp(x) + 1, (tn.ones((0, 3)),), {})
    assert [n["op"] for n in data["nodes"]] == ["exp", "add"]


def test_view_writes_what_the_name_ends_in(tmp_path: Path):
    step, _, inputs = training_step()
    seen = tn.debug.view(step, *inputs, path=tmp_path / "a.json", times=False)
    data = json.loads((tmp_path / "a.json").read_text())
    assert data == json.loads(json.dumps(seen.data)) and data["format"] == "tenon.view"
    assert all("define" in k["llvm"] and k["asm"] for k in data["kernels"])
    seen.save(tmp_path / "a.dot")
    text = (tmp_path / "a.dot").read_text()
    assert 'label="blocks"' in text and text.count("{") == text.count("}")
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)
    with pytest.raises(ArgumentError, match=r"ends in none of \.html|ends in none of \.json"):
        seen.save(tmp_path / "a.txt")
    with pytest.raises(ArgumentError, match="no folder"):
        tn.debug.view(step, *inputs, path=tmp_path / "none" / "a.json")
    with pytest.raises(ArgumentError, match="view takes a function"):
        tn.debug.view(3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "model.py").write_text("import tenon as tn\n\ndef f(x):\n    return tn.softmax(x * 2, axis=1)\n")
    out = tmp_path / "seen.json"
    assert cli.main(["view", f"{tmp_path}/model.py:f", "f32[B, 4]", "--output", str(out), "--no-code"]) == 0
    data = json.loads(out.read_text())
    assert data["sizes"] == {"N0": 11} and data["files"][0]["lines"][3].strip().startswith("return")
    assert "nodes" in capsys.readouterr().out
