"""The table of benchmarks: a row runs in a process of its own, results are compared, lines say how far ahead Tenon is."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import reductions, resident, scaling, sweep, table
from benchmarks.bursts import sample
from benchmarks.models import WORKLOADS
from benchmarks.other_sizes import OTHER_SIZES
from benchmarks.rows import ROWS, Row
from benchmarks.sweep_cases import Case, f32
from benchmarks.table import Measured


def test_a_row_runs_without_peers(capsys, tmp_path):
    table.main(["four_matmuls", "--threads", "1", "--seconds", "0.01", "--without", *table.LIBRARIES[1:],
                "--json", str(tmp_path / "found.json"), "--chart", str(tmp_path / "found.png")])
    assert "no peer" in (printed := capsys.readouterr().out) and "of the FMA peak" in printed
    (found,) = json.loads((tmp_path / "found.json").read_text())
    assert found["row"] == "four_matmuls" and 0 < found["values"]["tenon"] < 1 and not found["disagrees"]
    assert (tmp_path / "found.png").stat().st_size > 1000


def test_the_gain_of_a_second_thread_is_shown_beside_that_of_the_machine(capsys):
    scaling.main(["four_matmuls", "--seconds", "0.05", "--peers"])
    assert re.fullmatch(r"four_matmuls +machine FMA [\d.]+x copy [\d.]+x   tenon [\d.e-]+ / [\d.e-]+ ms, [\d.]+x\n",
                        capsys.readouterr().out)


def test_the_size_of_a_process_is_that_of_one_in_use(capsys):
    resident.main(["four_matmuls", "--libraries", "tenon"])
    assert re.fullmatch(r"four_matmuls tenon \d+ MB\n", capsys.readouterr().out)


def test_a_row_of_processes():
    (found,) = table.measure("import", 1, 0.0, ["tenon"])
    assert 0 < found.values["tenon"] < 60 and found.unit == "s"


def test_a_row_that_is_not_for_so_many_threads_has_no_line():
    assert table.measure("call", 2, 0.01, ["tenon"]) == []


def test_an_unknown_row_is_refused(capsys):
    with pytest.raises(SystemExit):
        table.main(["mpl"])
    assert "no row is named mpl" in capsys.readouterr().err


def test_every_network_has_a_row():
    assert all(isinstance(ROWS[name], Row) for name in [*WORKLOADS, *OTHER_SIZES])


def test_other_sizes_are_measured_where_they_are_named():
    assert table.chosen(["mlp", "other_sizes"]) == ["mlp", *OTHER_SIZES]
    assert {*table.chosen([]), *OTHER_SIZES} == {*ROWS} and not {*table.chosen([])} & {*OTHER_SIZES}


def test_a_line_says_how_far_ahead():
    line = str(Measured("mlp", 1, "s", {"tenon": 2e-3, "jax": 3e-3, "torch": 5e-3}, 1.3, ("FMA peak", 1e-3), "torch"))
    assert "1.50x jax (aim 1.30), 50% of the FMA peak" in line and "tenon 2 jax 3 torch 5 ms" in line
    assert line.endswith("DISAGREES: torch")


def test_what_libraries_return_is_compared_by_some_of_its_numbers():
    import tenon as tn
    assert sample((tn.arange(3), [2.5], None)) == [0.0, 1.0, 2.0, 2.5]
    assert len(sample(tn.zeros(6400))) == 64


def test_the_sweep_compares_and_sorts(capsys):
    pytest.importorskip("torch")
    sweep.main(["--only", "x / y  f32", "--seconds", "0.001"])
    sweep.main(["--only", "l1_loss + gradient", "--seconds", "0.001"])
    printed = capsys.readouterr().out
    assert "x / y  f32[1000003] f32[1000003]\n" in printed and "l1_loss + gradient" in printed     # with nothing wrong
    rows = [sweep.Line(case, seconds, 1.0) for case, seconds in zip(sweep.cases(), (1.0, 3.0, 2.0), strict=False)]
    broken = sweep.Line(sweep.cases()[3], float("nan"), float("nan"), "FAILS")
    lines = sweep.table([*rows, broken], above=1.5).splitlines()
    assert "FAILS" in lines[1] and [line.split()[0] for line in lines[2:]] == ["3.00", "2.00"]


def test_the_sweep_tells_what_differs():
    torch = pytest.importorskip("torch")
    import tenon as tn
    wrong = Case("wrong", lambda m, x: x + 1 if m is tn else x, [f32(3)])
    assert sweep.measured(wrong, 0.0).wrong == "DIFFERS"
    assert "float64" in sweep.measured(Case("wide", lambda m, x: x, [f32(3)], lambda torch, x: x.double()), 0.0).wrong
    assert "FAILS" in sweep.measured(Case("fails", lambda m, x: x if m is torch else x.none, [f32(3)]), 0.0).wrong


@pytest.fixture
def only_max_of_rows(monkeypatch):
    """Runs that row, beside libraries that return zeros or what Tenon does."""
    def run(**wrong):
        returned = {name: (lambda *_: lambda: np.zeros(4096, np.float32)) if is_wrong else reductions.MAKE["tenon"]
                    for name, is_wrong in wrong.items()}
        monkeypatch.setattr(reductions, "MAKE", {"tenon": reductions.MAKE["tenon"], **returned})
        monkeypatch.setattr(reductions, "installed", lambda name: True)
        monkeypatch.setattr(reductions, "importlib", SimpleNamespace(import_module=lambda name: None))
        reductions.main(["--only", "max of rows", "--seconds", "0.01"])
    return run


def test_a_library_that_returns_something_else_is_told_and_the_row_goes_on(capsys, only_max_of_rows):
    only_max_of_rows(onnxruntime=True, openvino=False)
    told, line = capsys.readouterr().out.splitlines()
    assert told == "max of rows: ONNX Runtime returns something else: left out"
    assert line.startswith("max of rows") and "OpenVINO" in line and "ONNX" not in line


def test_where_no_library_returns_what_tenon_does_the_run_ends(only_max_of_rows):
    with pytest.raises(SystemExit, match="max of rows: no library returns what Tenon does"):
        only_max_of_rows(onnxruntime=True)
