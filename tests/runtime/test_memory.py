"""The arena planner: what lives together lies apart, in little more than the least memory possible."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenon.runtime.arena_planning import ArenaBuffer, aligned_bytes, plan_arena


@st.composite
def programs(draw):
    buffers = []
    for index in range(draw(st.integers(0, 25))):
        first = draw(st.integers(0, 12))
        size = draw(st.one_of(st.integers(0, 5000), st.sampled_from([64, 256, 4096])))
        shares = draw(st.one_of(st.none(), st.integers(0, index)))
        last = first + draw(st.integers(0, 6))
        buffers.append(ArenaBuffer(size, first, last, draw(st.sampled_from([64, 64, 128, 4096])), shares))
    return buffers


def overlap(a: ArenaBuffer, b: ArenaBuffer, where_a: int, where_b: int) -> bool:
    alive_together = a.first <= b.last and b.first <= a.last
    return alive_together and where_a < where_b + b.size and where_b < where_a + a.size


def handed_over(a: ArenaBuffer, index_a: int, b: ArenaBuffer) -> bool:
    return b.shares == index_a and a.last == b.first


@settings(max_examples=40, deadline=None)
@given(programs())
def test_no_two_live_buffers_overlap_unless_one_is_handed_over_to_the_other(buffers):
    plan = plan_arena(buffers)
    taken = set()
    for i, a in enumerate(buffers):
        assert plan.offsets[i] % a.alignment == 0 and 0 <= plan.offsets[i] <= plan.size - a.size
        for j, b in enumerate(buffers[:i]):
            if overlap(a, b, plan.offsets[i], plan.offsets[j]):
                (giver, taker) = (j, i) if handed_over(b, j, a) else (i, j)
                assert handed_over(buffers[giver], giver, buffers[taker])
                assert plan.offsets[i] == plan.offsets[j] and giver not in taken
                taken.add(giver)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_a_plan_is_no_smaller_than_what_is_alive_at_once(buffers):
    plan = plan_arena([ArenaBuffer(b.size, b.first, b.last) for b in buffers])
    peak = max((sum(b.size for b in buffers if b.first <= step <= b.last) for step in range(20)), default=0)
    assert plan.size >= plan.lower_bound >= peak
    assert plan.gap == (plan.size / plan.lower_bound - 1 if plan.lower_bound else 0)


def test_a_chain_needs_two_buffers_and_in_place_one():
    chain = [ArenaBuffer(4096, step, step + 1) for step in range(10)]
    in_place = [ArenaBuffer(4096, step, step + 1, shares=step - 1 if step else None) for step in range(10)]
    assert plan_arena(chain).size == 8192
    assert plan_arena(in_place).size == 4096


def test_a_place_is_not_shared_with_what_is_still_needed():
    still_read = [ArenaBuffer(64, 0, 2), ArenaBuffer(64, 1, 3, shares=0)]
    given_twice = [ArenaBuffer(64, 0, 1), ArenaBuffer(64, 1, 2, shares=0), ArenaBuffer(64, 1, 2, shares=0)]
    assert plan_arena(still_read).offsets[0] != plan_arena(still_read).offsets[1]
    assert len(set(plan_arena(given_twice).offsets)) == 2


def training_step(layers: int, seed: int) -> list[ArenaBuffer]:
    """Activations live until the backward pass has come back to them, gradients of parameters to the end."""
    random = np.random.default_rng(seed)
    end = 4 * layers
    buffers = []
    for layer in range(layers):
        size = int(random.integers(1, 200)) * 1024
        backward = end - 2 * layer - 1
        buffers.append(ArenaBuffer(size, 2 * layer, backward))
        buffers.append(ArenaBuffer(int(random.integers(1, 100)) * 1024, 2 * layer, 2 * layer + 1))  # scratch, forward
        buffers.append(ArenaBuffer(size, backward - 1, backward + 1))  # the gradient of the activation
        buffers.append(ArenaBuffer(int(random.integers(1, 100)) * 512, backward, end))  # the gradient of a parameter
    return buffers


def inference(layers: int, seed: int) -> list[ArenaBuffer]:
    """Each result is read one to three steps later."""
    random = np.random.default_rng(seed)
    return [ArenaBuffer(int(random.integers(1, 100)) * 4096, i, i + int(random.integers(1, 4))) for i in range(layers)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("program", [training_step, inference])
def test_programs_come_within_a_few_percent_of_the_bound(program, seed):
    assert plan_arena(program(60, seed)).gap <= 0.03


def test_thousands_of_buffers_take_about_a_second():
    start = time.thread_time()      # of this thread alone, and some thirty times what it takes
    plan = plan_arena(training_step(1000, 0))
    assert plan.gap <= 0.01 and time.thread_time() - start < 5


@pytest.mark.parametrize(("size", "alignment"), [(1, 64), (1000, 64), (10 * 2**20, 2 * 2**20)])
def test_memory_is_aligned_and_of_the_size_asked(size, alignment):
    memory = aligned_bytes(size)
    assert memory.nbytes == size and memory.dtype == np.uint8 and memory.flags.writeable
    assert memory.ctypes.data % alignment == 0
