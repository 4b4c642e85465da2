"""Expressions: equal ones are one object, whoever makes them and whatever has gone; what they are made of."""

import gc
import threading

from hypothesis import given

from tenon.graph.text import key_of
from tenon.loops import hash_consing
from tenon.loops.cost import STORE, cost
from tenon.loops.expression_builder import GraphExpressions
from tenon.loops.expressions import Binary, Buffer, Index, Load, Reduce, size
from tenon.loops.hash_consing import Interned, forget_gone
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import loop_indices, lower
from tenon.loops.traversal import parts, walk
from tenon.passes.fusion.fusion_groups import bytes_of
from tenon.passes.fusion.kernel_bodies import body_of
from tests.graphs import graphs


def test_equal_expressions_are_one_object():
    i = Index("i", 4)
    assert i * size(2) + size(1) is Index("i", 4) * size(2) + size(1)
    assert i is not Index("i", 5)


def test_an_expression_may_be_made_again_after_it_has_gone():
    made = Index("gone", 7) * size(3)
    text = str(made)
    del made
    gc.collect()
    again = Index("gone", 7) * size(3)
    assert str(again) == text and again is Index("gone", 7) * size(3)


def test_places_of_expressions_that_are_gone_are_cleared():
    forget_gone()
    before = len(Interned._table)
    for k in range(500):
        Binary("+", Binary("+", Index(f"cleared{k}", 7), size(3)), size(k))
    gc.collect()
    forget_gone()
    assert len(Interned._table) - before < 100 + 500       # numbers may be kept


def test_places_are_cleared_when_there_are_many(monkeypatch):
    forget_gone()
    before = len(Interned._table)       # what other tests left
    monkeypatch.setattr(Interned, "_most", before + 1000)
    monkeypatch.setattr(hash_consing, "MAX_PLACES", 1000)
    kept = [Index(f"kept{k}", 7) * size(3) for k in range(100)]
    most = 0
    for k in range(20_000):
        Index(f"many{k}", 7) + size(3)
        most = max(most, len(Interned._table))
    assert most - before < 3 * (len(kept) + 1000) + 2 * len(kept)
    assert all(x is Index(f"kept{k}", 7) * size(3) for k, x in enumerate(kept))


def test_threads_that_make_equal_expressions_get_one_object():
    found, ready = [], threading.Barrier(4)

    def make():
        ready.wait()
        found.append([Index(f"thread{k}", k) + size(k) for k in range(300)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x is y for other in found[1:] for x, y in zip(found[0], other, strict=True))


@given(graphs(symbolic=True))
def test_parts_of_a_kind_are_those_that_a_walk_finds(graph):
    buffers = {p: Buffer(f"p{k}", p.type, "input") for k, p in enumerate(graph.params)}
    build = GraphExpressions(graph, buffers)
    for result in graph.results:
        x = build.at(result, loop_indices(result.type)[0])
        for kind in (Reduce, Load, Binary, Load, Index):
            assert list(parts(x, kind)) == [y for y in walk(x) if isinstance(y, kind)]


@given(graphs(symbolic=True))
def test_a_walk_comes_to_everything_once_and_to_parts_before_the_whole(graph):
    def visit(x, found):
        if x not in found:
            for child in x.children():
                visit(child, found)
            found.append(x)
    buffers = {p: Buffer(f"p{k}", p.type, "input") for k, p in enumerate(graph.params)}
    build = GraphExpressions(graph, buffers)
    roots = [build.at(result, loop_indices(result.type)[0]) for result in graph.results]
    expected = []
    for root in roots:
        visit(root, expected)
    assert walk(*roots) == expected


def made(graph):
    """The results that its nodes make."""
    return [x for x in dict.fromkeys(graph.results) if x.node is not None]


@given(graphs(symbolic=True))
def test_bodies_with_one_key_have_the_same_loops(graph):
    one, _ = body_of(graph.nodes, made(graph))
    other, _ = body_of(one.nodes, made(one))
    assert key_of(one) == key_of(other)
    first, second = lower(one, "kernel"), lower(other, "kernel")
    assert print_kernel(first) == print_kernel(second) and cost(first) == cost(second)


@given(graphs(symbolic=True))
def test_what_a_kernel_stores_is_a_part_of_its_cost(graph):
    body, _ = body_of(graph.nodes, made(graph))
    assert cost(lower(body, "kernel")) >= STORE * sum(map(bytes_of, made(graph)))
