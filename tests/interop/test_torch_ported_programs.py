"""Programs for PyTorch, run by Tenon after their imports are changed: the same losses.

Where a call means another thing in Tenon, the line that has to be changed stands in `CHANGES`.
"""

import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenon.debug.ported_script import changed_imports

FILES = {"torch_programs.py": (2e-4, 1e-6), "torch_programs_double.py": (1e-8, 1e-10),
         "torch_programs_further.py": (1e-8, 1e-10), "torch_programs_kinds.py": (1e-8, 1e-10)}
CHANGES = {
    "time_sequence_prediction": ("input.split(1, dim=1)", "input.split_with_sizes([1] * input.size(1), dim=1)"),
    "dqn": (".max(1)[0]", ".max(1)"),
    "char_rnn_classification": ("tensor[li][0][letter] = 1", "tensor[li, 0, letter] = 1"),
    "gcn": (".max(1)[1]", ".argmax(1)"), "vq_vae": ("torch.var(data)", "torch.var(data, unbiased=True)"),
    "radiance_field": ("torch.split(pts.reshape(-1, 3), 10)", "pts.reshape(-1, 3).split_with_sizes([10, 10, 4])"),
    "lstm_crf": ("forward_var[0][0] = 0.0", "forward_var[0, 0] = 0.0",
                 "torch.max(self.transitions + forward_var.unsqueeze(0), dim=1)",
                 "(s := self.transitions + forward_var.unsqueeze(0)).max(dim=1), s.argmax(dim=1)"),
    "point_net": ("2, keepdim=True)[0]", "2, keepdim=True)", "_, predicted = torch.max(model(data)[0].data, 1)",
                  "predicted = model(data)[0].data.argmax(1)")}


def source(file: str) -> str:
    """The text of a file, with that of the inputs that it imports."""
    folder = Path(__file__).parent
    return re.sub(r"from interop\.(torch_program_inputs) import .*", lambda m: (folder / f"{m[1]}.py").read_text(),
                  (folder / file).read_text())


def names(file: str) -> list[str]:
    listed = source(file).rpartition("PROGRAMS = (")[2].rstrip(")\n")
    return [name.strip() for name in listed.split(",")]


def program(text: str, name: str) -> Any:
    module = types.ModuleType("programs")
    exec(compile(text, "torch_programs.py", "exec"), vars(module))
    return vars(module)[name]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("file", "name"), [(file, name) for file in FILES for name in names(file)])
def test_the_losses_are_pytorchs(file: str, name: str) -> None:
    text = source(file)
    wanted = program(text, name)()
    ported = changed_imports(text)
    if name in CHANGES:
        for old, new in zip(CHANGES[name][::2], CHANGES[name][1::2], strict=True):
            assert ported.count(old) == 1
            ported = ported.replace(old, new)
    rtol, atol = FILES[file]
    np.testing.assert_allclose(program(ported, name)(), wanted, rtol=rtol, atol=atol)


def test_most_programs_need_nothing_but_their_imports_changed() -> None:
    every = [name for file in FILES for name in names(file)]
    assert len(CHANGES) <= 0.3 * len(every) and set(CHANGES) < set(every)
