"""Graphs that processes captured, each its own -> nothing, or on every rank an error that says where they differ."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from tenon.distributed.mpi_link import MpiLink
from tenon.errors import CommunicationError
from tenon.graph.ir import Graph
from tenon.graph.text import print_graph

TAG = 1                 # of the digests; collectives have other ones
PLACE = "  # "          # what stands between a node and the user's line
NOTHING = "nothing"


def check_same_graph(graph: Graph, link: MpiLink) -> None:
    """Raise CommunicationError unless the graphs of all ranks say the same, whatever lines they come from."""
    digest = np.frombuffer(hashlib.sha256(print_graph(graph, locations=False).encode()).digest(), np.uint8)
    digests = [digest if k == link.rank else np.empty_like(digest) for k in range(link.size)]
    others = [k for k in range(link.size) if k != link.rank]
    link.exchange([(k, digest) for k in others], [(k, digests[k]) for k in others], TAG,
                  lambda: f"the comparison of the graphs of {graph.name}")
    if any((x != digest).any() for x in digests):
        raise CommunicationError(difference(graph.name, link.gather_texts(print_graph(graph))),
                                 hint="all ranks must run the same Python up to the data, and draw no numbers of "
                                      "their own before it")


def difference(name: str, texts: Sequence[str]) -> str:
    """What the first two ranks that differ have at the first place where they do."""
    ours = texts[0].splitlines()
    for rank, text in enumerate(texts):
        for k, (mine, other) in enumerate(zip_longest(ours, text.splitlines(), fillvalue=NOTHING)):
            if mine.partition(PLACE)[0] != other.partition(PLACE)[0]:
                what = "at its parameters" if k == 0 else f"at node {k}"
                mine, other = first_that_differs(mine, other) if k == 0 else (mine, other)
                return (f"ranks captured different graphs of {name}, {what}: rank 0 has `{mine.strip()}`, "
                        f"rank {rank} has `{other.strip()}`")
    return f"ranks captured different graphs of {name}"


def first_that_differs(mine: str, other: str) -> tuple[str, str]:
    """The first parameters that differ of two heads of graphs, which may have hundreds; the heads where none does."""
    listed = (re.split(r", (?=\w+: )", head.partition("(")[2].removesuffix("):")) for head in (mine, other))
    return next(((x, y) for x, y in zip_longest(*listed, fillvalue=NOTHING) if x != y), (mine, other))
