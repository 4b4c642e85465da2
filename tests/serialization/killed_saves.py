"""Children that save a model again and again are killed at any moment; the file is then the old one or a new one.

    python killed_saves.py FILE TIMES
"""

import os
import signal
import sys
import time
from random import Random
from typing import Any

import tenon as tn

SIZE = 20_000


def main(path: str, times: int) -> None:
    rng = Random(7)
    w = tn.zeros(SIZE)

    def f(x: Any) -> Any:
        return x + w.sum()
    tn.save(path, f, ["f32[3]"])
    model, versions = tn.load(path), set()
    began = time.monotonic()
    for _ in range(5):
        tn.save(path, model)
    longest = (time.monotonic() - began) / 5 * 2
    for turn in range(times):
        saved, told = os.pipe()
        if (child := os.fork()) == 0:
            for number in range(1, 1000):
                next(x for x in model.model.state.values()).assign(tn.full((SIZE,), float(1000 * turn + number)))
                tn.save(path, model)
                os.write(told, b".")
            os._exit(1)
        for _ in range(rng.randrange(3)):       # a busy machine may be slow at any of them
            os.read(saved, 1)
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(saved), os.close(told)
        found = {float(x) for x in tn.load(path).state_dict()["w"].tolist()}
        assert len(found) == 1, "half of one state and half of another"
        versions |= found
    tn.save(path, model)
    print(len(versions), len(os.listdir(os.path.dirname(path))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
