"""For each row of table 1 of arXiv 2104.04473: what was measured, what Tenon simulates, and the plan that Tenon finds.

    PYTHONPATH=. python tools/plan_megatron.py
"""

import sys
import time
from pathlib import Path

import tenon as tn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from megatron_table import TABLE, divided


def main() -> int:
    """Print a line a row; 1 where a plan is slower than the published one."""
    worse = 0
    for row in TABLE:
        model, sizes = divided(row)
        theirs = tn.distributed.estimate_step(model, sizes, tn.distributed.load_cluster("a100"))
        reached = model.operations(recomputed=True) / theirs.seconds / row.gpus / 1e12
        started = time.perf_counter()
        best = tn.distributed.plan(model, cluster="a100", devices=row.gpus).best
        found = f"{best.sizes.stage} x {best.sizes.data} x {best.sizes.model}, {best.sizes.schedule}"
        print(f"{row.billions:7}B on {row.gpus:4}: measured {row.measured}, simulated {reached:.0f} TFLOP/s "
              f"({reached / row.measured - 1:+.0%}); step {theirs.seconds:6.2f} s, planned {best.seconds:6.2f} s: "
              f"{found} (in {time.perf_counter() - started:.0f} s)", flush=True)
        worse += best.seconds > theirs.seconds
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
