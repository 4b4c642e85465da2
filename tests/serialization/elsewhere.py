"""Runs saved models in a process that has none of their source: `python elsewhere.py FOLDER CALLS`."""

import sys
from pathlib import Path
from typing import Any

import tenon as tn
from tenon.capture.pytree import flatten


def tensors(nest: Any) -> dict[str, Any]:
    """What a result holds, in an order; numbers and texts too."""
    leaves, _ = flatten(nest)
    flat = [y for x in leaves for y in (vars(x).values() if type(x).__name__ == "Fields" else (x,))]
    return {str(k): x if isinstance(x, tn.Tensor) else repr(x) for k, x in enumerate(flat)}


def main(folder: Path, calls: int) -> None:
    for path in sorted(folder.glob("*.model")):
        model, args = tn.load(path), tn.load(path.with_suffix(".args"))
        given = [as_given(x) for x in args]
        tn.save([tensors(model(*given)) for _ in range(calls)], path.with_suffix(".out"))


def as_given(x: Any) -> Any:
    """An argument whose class is the user's is a dict here, under a name that says so."""
    if isinstance(x, dict) and "Pair" in x:
        return tuple(x["Pair"])
    if isinstance(x, dict) and "State" in x:
        return type("Anything", (), x["State"])()
    return x


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
