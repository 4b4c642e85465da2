"""Mutated files of models: each is refused, or is whole and runs.  Nothing crashes, hangs or takes much memory.

    python tests/serialization/mutated_models.py --count 100000 --seed 7 --run 0.05

A change is one of bytes anywhere, of the header's JSON (values of other kinds, names, numbers, parts left out, doubled
or exchanged), or of the text of a graph.  A worker process goes through the files and says what became of each.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]
SECONDS = 5.0              # of the processor, on one file
PARSING = 64 << 20          # that parsing a graph of any size may take beside
MEMORY = 6 << 30            # that a process maps
JUNK: tuple[Any, ...] = (None, True, -1, 0, 1, 2, 63, 1 << 31, 1 << 63, 1 << 70, 1.5, "", "x", "f32[2]", "B", [], {}, [[]],
                         ["leaf"], {"float": "nan"}, "a" * 300, [1, 2, 3], "\u0000", "../x", "net.weight")


def split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """(the header, the elements)."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8:8 + length]), content[8 + length:]


def joined(header: Any, elements: bytes) -> bytes:
    text = json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + elements


def mutated(whole: bytes, rng: Random) -> bytes:
    """A file with one to three changes."""
    if rng.random() < 0.15:
        return changed_bytes(whole, rng)
    header, elements = split(whole)
    for _ in range(rng.choice((1, 1, 2, 3))):
        metadata = header["__metadata__"]
        keys = [key for key in metadata if key.startswith("tenon.")]
        if rng.random() < 0.2 or not keys:
            changed_tree(header, rng)
            if not isinstance(header.get("__metadata__"), dict):
                break
            continue
        key = rng.choice(keys)
        if key.startswith("tenon.graph.") and isinstance(metadata[key], str):
            metadata[key] = changed_text(metadata[key], rng)
        elif isinstance(metadata[key], str):
            try:
                tree = json.loads(metadata[key])
            except ValueError:
                break
            metadata[key] = json.dumps(changed_tree(tree, rng))
    return joined(header, elements)


def changed_bytes(whole: bytes, rng: Random) -> bytes:
    changed = bytearray(whole)
    at = rng.randrange(len(changed))
    match rng.randrange(4):
        case 0:
            changed[at] = rng.randrange(256)
        case 1:
            del changed[at:]
        case 2:
            del changed[at:at + rng.randrange(1, 9)]
        case 3:
            changed[at:at] = changed[at:at + rng.randrange(1, 9)]
    return bytes(changed)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every part of a nest."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from places(tree[key])


def changed_tree(tree: Any, rng: Random) -> Any:
    """A part is another, another kind, gone, or there twice; the nest itself is changed."""
    if not isinstance(tree, (dict, list)) or not tree:
        return rng.choice(JUNK)
    found = list(places(tree))
    container, key = rng.choice(found)
    match rng.randrange(5):
        case 0:
            container[key] = copy.deepcopy(rng.choice(JUNK))
        case 1:
            other, there = rng.choice(found)
            container[key] = copy.deepcopy(other[there])
        case 2:
            del container[key]
        case 3 if isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        case 3:
            container[rng.choice(("x", "tenon.function.f", f"{key}.0"))] = copy.deepcopy(container[key])
        case 4 if type(container[key]) is int:
            container[key] += rng.choice((-1, 1))
        case 4 if type(container[key]) is bool:
            container[key] = not container[key]
    return tree


def changed_text(text: str, rng: Random) -> str:
    from robustness.mutations import mutated as mutated_text
    return mutated_text([text], rng)


# ---------------------------------------------------------------- what becomes of a file

def outcome(content: bytes, path: Path, run: bool, measure: bool) -> str:
    """`refused`, `accepted`, `ran`, `failed`, or what is wrong; `measure`: memory too, which takes time."""
    path.write_bytes(content)
    if measure:
        tracemalloc.start()
    found, model = loaded(path)
    peak = tracemalloc.get_traced_memory()[1] if measure else 0
    tracemalloc.stop()
    if peak > 2 * len(content) + PARSING:
        return f"took {peak} bytes for {len(content)}"
    if found != "accepted" or not run or not hasattr(model, "functions"):
        return found
    return ran(model)


def loaded(path: Path) -> tuple[str, Any]:
    """(`accepted`, `refused`, or what is wrong; what was loaded)."""
    import tenon as tn
    from robustness.mutated_graphs import within
    from tenon.errors import ArgumentError
    try:
        with within(SECONDS):
            return "accepted", tn.load(path)
    except ArgumentError as error:
        return ("refused" if "damaged" in error.what else f"another error: {error}"), None
    except BaseException as error:
        return f"{type(error).__name__}: {error}", None


def ran(model: Any) -> str:
    """What becomes of calls of its functions: `ran`, `failed`, or what is wrong."""
    import numpy as np

    from robustness.mutated_graphs import Stopped, within
    from tenon.errors import TenonError
    try:
        for function in model.functions.values():
            data = function.function
            types = iter(data.variants[0].types)
            leaves = [data.values[k] if k in data.values else zeros(next(types)) for k in range(len(data.arguments))]
            if sum(x.nbytes for x in leaves if isinstance(x, np.ndarray)) > 1 << 24:
                return "accepted"
            args, keywords = data.structure.build(leaves)
            with within(SECONDS):
                function(*args, **keywords)
    except TenonError:
        return "failed"
    except Stopped:             # a loop that goes on for ever is what the text says
        return "stopped"
    except BaseException as error:
        return f"in a run, {type(error).__name__}: {error}"
    return "ran"


def zeros(type: Any) -> Any:
    """An array of a type that takes no memory before it is read, its symbols being 3."""
    import numpy as np
    return np.zeros([n if isinstance(n, int) else 3 for n in type.shape], type.dtype.numpy)


def findings(files: list[bytes], folder: Path, count: int, seed: int, share: float,
             seconds: float = float("inf")) -> tuple[Counter[str], list[tuple[int, str]]]:
    """What became of the mutated files of a seed, and which of them are to be mended."""
    counts: Counter[str] = Counter()
    bad: list[tuple[int, str]] = []
    end = time.process_time() + seconds
    for number in range(count):
        if time.process_time() > end:
            break
        rng = Random(f"{seed}/{number}")
        content = mutated(rng.choice(files), rng)
        found = outcome(content, folder / "mutated", rng.random() < share, number % 10 == 0)
        counts[found if found in GOOD else "bad"] += 1
        if found not in GOOD:
            bad.append((number, found))
    return counts, bad


GOOD = ("refused", "accepted", "ran", "failed", "stopped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=float, default=0.05, help="of those accepted, how many are run")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    import tempfile
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        counts, bad = findings([file.read_bytes() for file in given.files], Path(folder), given.count, given.seed,
                               given.run, given.minutes * 60)
    for number, what in bad:
        print(f"--- {number}: {what}")
    print(dict(counts))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
