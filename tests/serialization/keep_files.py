"""Writes the files of the present format that later versions must go on reading: `python keep_files.py`, once a format.

Beside each model stand its arguments, and the results of three calls.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import tenon as tn  # noqa: E402
from serialization.elsewhere import tensors  # noqa: E402
from serialization.programs import PROGRAMS  # noqa: E402
from tenon.serialization.write_model import FORMAT  # noqa: E402

KEPT = ("attention_with_dynamic_length", "rnn_until", "branch", "scanned", "nested_inputs", "several_outputs",
        "tied_weights", "adam_step", "step_that_leaves_gradients", "attribute_as_state", "random_numbers")


def main() -> None:
    folder = HERE / "files" / f"format_{FORMAT}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        tn.manual_seed(3)
        function, args, options = PROGRAMS[name]()
        tn.save(folder / f"{name}.model", function, args, **options)
        tn.save(list(args), folder / f"{name}.args")
        model = tn.load(folder / f"{name}.model")
        tn.save([tensors(model(*args)) for _ in range(3)], folder / f"{name}.results")


if __name__ == "__main__":
    main()
