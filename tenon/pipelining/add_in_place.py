"""A segment that gives parts of sums -> the same with each added to the sum so far, in its memory.

    B1(x, g, sum of weight gradients)  ->  (..., sum of weight gradients)

So the compiled product adds as it stores; what a micro-batch gives is never written on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tenon.graph.build import Builder, call_graph
from tenon.graph.ir import DONATED, UPDATES, Value
from tenon.graph.op import OPS, using
from tenon.pipelining.segments import Segment
from tenon.pipelining.step_parts import Accumulated
from tenon.records import replace


def adding_in_place(segment: Segment, sums: Mapping[Value, Accumulated], read: Collection[Value]) -> Segment:
    """The segment that takes the sums of its parts so far, behind what it reads, and returns them behind what it makes.

    `sums` are by part; a part that is `read` elsewhere is still made.
    """
    chosen = [sums[x] for x in segment.makes if x in sums and sums[x].how == "sum"]
    if not chosen:
        return segment
    builder = Builder(segment.graph.name, [Value(p.type, name=p.name) for p in segment.graph.params], rewriting=True)
    with using(builder):
        made = dict(zip(segment.makes, call_graph(segment.graph, builder.params), strict=True))
        before = [builder.parameter(total.part.type, "sum") for total in chosen]
        added = [builder.emit(OPS["add"], (old, made[total.part]), {})
                 for old, total in zip(before, chosen, strict=True)]
    parts = {total.part for total in chosen}
    makes = tuple(x for x in segment.makes if x not in parts or x in read)
    graph = builder.finish([*(made[x] for x in makes), *added])
    places = tuple(range(len(segment.reads), len(graph.params)))
    graph.notes = {DONATED: places,
                   UPDATES: tuple((p, len(makes) + k) for k, p in enumerate(places))}
    return replace(segment, graph=graph, makes=makes, sums=tuple(chosen))
