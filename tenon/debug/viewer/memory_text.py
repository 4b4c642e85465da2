"""The data of a captured function -> in words, what is in memory at the step at which most is."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.debug.viewer.graph_data import Data

SHOWN = 20              # places


def memory_text(data: Data) -> str:
    """The step of the peak, and the places that are in use then, the largest first."""
    arena = data["arena"]
    if not arena or not arena["places"]:
        return f"{data['name']}: nothing lies between kernels"
    live = _live(arena["places"], arena["steps"])
    peak = live.index(max(live))
    places = sorted((p for p in arena["places"] if p["first"] <= peak <= p["last"]), key=lambda p: -p["bytes"])
    lines = [f"{data['name']}: {arena['size'] / 1e6:.3f} MB between kernels, at least "
             f"{arena['lower_bound'] / 1e6:.3f}; "
             f"most at step {peak}, {data['steps'][peak]['name']}"]
    lines += [f"  {p['bytes'] / 1e6:9.3f} MB  {p['type']}  steps {p['first']} to {p['last']}  "
              f"{_made_for(data, p['step'])}" for p in places[:SHOWN]]
    if len(places) > SHOWN:
        lines.append(f"  {sum(p['bytes'] for p in places[SHOWN:]) / 1e6:9.3f} MB in {len(places) - SHOWN} more")
    return "\n".join(lines)


def _live(places: Sequence[Data], steps: int) -> list[int]:
    """Bytes in use at each step."""
    live = [0] * steps
    for place in places:
        for k in range(place["first"], place["last"] + 1):
            live[k] += place["bytes"]
    return live


def _made_for(data: Data, step: int) -> str:
    """The line, module and phase that have most of a step."""
    shares = [(share, k) for k, share in data["steps"][step]["origins"] if k >= 0]
    if not shares:
        return str(data["steps"][step]["name"])
    origin = data["origins"][max(shares)[1]]
    line = f"{data['files'][origin['file']]['name']}:{origin['line']}" if origin["file"] >= 0 else ""
    return " ".join(filter(None, (line, origin["path"], origin["phase"])))
