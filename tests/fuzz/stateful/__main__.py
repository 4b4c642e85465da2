"""`PYTHONPATH=tests python -m fuzz.stateful FIRST COUNT FOLDER`: judge programs of new seeds; what is wrong stays in the folder."""

import sys
from pathlib import Path

from fuzz.stateful.judge import judge

first, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
wrong = 0
for seed in range(first, first + count):
    if (found := judge(seed, folder)) is not None:
        wrong += 1
        print(f"seed {seed}: {found[:600]}", flush=True)
print(f"{count} programs, {wrong} wrong")
sys.exit(bool(wrong))
