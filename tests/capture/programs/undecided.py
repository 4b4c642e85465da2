"""Containers whose length, keys or existence the data decide: read, changed, shared, carried by loops, left behind."""

import copy
from collections import deque
from dataclasses import dataclass, field

from capture.corpus import T, V, program, scalar, session

EVENTS = []
TABLE = {"calls": 0}


@program
def nested_lists_grow(x):
    groups = [[], []]
    for k in range(4):
        groups[0 if k < 2 else 1].append(k)
        if x[k] > 0:
            groups[k % 2].append(x[k])
    return groups, len(groups[0]), len(groups[1])


@program
def list_of_pairs(x):
    found = []
    for k in range(4):
        if x[k] > 0:
            found.append((k, x[k] * 2.0))
    total = T.sum(x) * 0.0
    for place, value in found:
        total = total + place * value
    return found, total


@program
def list_in_an_attribute(x):
    class Box:
        pass
    box = Box()
    box.items = [x[0]]
    if T.sum(x) > 0:
        box.items.append(x[1])
    if x[2] > 0:
        box.items.append(x[2])
    return len(box.items), box.items[-1], sum(box.items)


@program
def two_names_for_one_list(x):
    first = [x]
    second = first
    if T.sum(x) > 0:
        second.append(x * 2.0)
    first.append(x * 3.0)
    return len(second), second is first, second[-1], second[1]


@program
def changed_in_both_branches(x):
    items = [x, x * 2.0]
    if T.sum(x) > 0:
        items.append(x * 3.0)
        items.append(x * 4.0)
    else:
        items.pop(0)
    return items, items[0], items[-1]


@program
def queue_in_a_fixed_loop(x):
    queue = deque([x])
    done = []
    for k in range(4):
        if not queue:
            break
        item = queue.popleft()
        done.append(T.sum(item))
        if x[k] > 0:
            queue.append(item * 0.5)
            queue.append(item - 1.0)
    return done, len(queue)


@program
def gradient_through_a_list(x):
    def loss(v):
        kept = []
        for k in range(4):
            if v[k] > 0:
                kept.append(v[k] * v[k])
        return sum(kept) if kept else T.sum(v) * 0.5
    return T.grad(loss)(x)


@program
def gradient_through_a_stack(x):
    def loss(v):
        kept = [v]
        if T.sum(v) > 0:
            kept.append(v * v)
        return T.sum(T.stack(kept) * 2.0)
    return T.grad(loss)(x)


@program
def gradient_through_a_loop(x):
    def loss(v):
        parts = []
        while T.sum(T.abs(v)) > 1.0:
            parts.append(T.sum(v * v))
            v = v * 0.5
        return sum(parts)
    return T.grad(loss)(x)


@program
def mean_of_a_stack(x, y):
    rows = [x]
    for row in y:
        if T.sum(row) > 0.5:
            rows.append(row)
    return T.mean(T.stack(rows), 0), T.max(T.stack(rows))


@program
def joined_along_rows(x, y):
    rows = [x]
    for row in y:
        if T.sum(row) > 0.5:
            rows.append(row)
    return T.concat(rows)


@program
def work_list(x):
    pending, area = [(T.min(x), T.max(x))], T.sum(x) * 0.0
    while pending:
        low, high = pending.pop()
        if high - low > 1.5:
            middle = (low + high) / 2.0
            pending.append((low, middle))
            pending.append((middle, high))
        else:
            area = area + (high - low) * low
    return area


@program
def numbers_in_a_list_of_a_loop(x):
    steps, k = [], 0
    while T.sum(T.abs(x)) > 1.0:
        if x[0] > 0:
            steps.append(k)
        x = x * 0.5
        k += 1
    return steps, len(steps), k


@program
def last_of_a_list_that_a_loop_left(x):
    trail = [x]
    while T.sum(T.abs(trail[-1])) > 1.0:
        trail.append(trail[-1] * 0.5)
    return trail[-1], trail[0], len(trail)


@program
def loop_over_what_a_loop_left(x):
    parts = []
    while T.sum(T.abs(x)) > 1.0:
        parts.append(x)
        x = x * 0.5
    total = x * 0.0
    for p in parts:
        if T.sum(p) > 0:
            total = total + p
    return total, len(parts)


@program
def index_out_of_range_for_some_data(x):
    found = []
    for k in range(3):
        if x[k] > 0.3:
            found.append(x[k])
    return found[1]


@program
def pop_from_a_list_that_may_be_empty(x):
    found = []
    if T.sum(x) > 0:
        found.append(x)
    found.pop()
    return len(found)


@program
def unpacked_where_it_fits(x):
    pair = [x]
    if T.sum(x) > 0:
        pair.append(x * 2.0)
    try:
        a, b = pair
    except ValueError:
        return x
    return a + b


@program
def starred_from_a_list_that_grew(x):
    items = [x[0]]
    if x[2] > 0:
        items.append(x[1])
    if x[3] > 0:
        items.append(x[2])
    first, *middle = items
    *front, last = items
    return first, middle, front, last


@program
def slices_of_a_list_that_grew(x):
    items = []
    for k in range(4):
        if x[k] > 0:
            items.append(x[k])
    return items[1:], items[:2], items[-2:], items[:-1], items[::-1], items[:]


@program
def item_set_in_a_list_that_grew(x):
    items = [x[0]]
    if T.sum(x) > 0:
        items.append(x[1])
    items[-1] = x[3]
    items[0] = items[0] + 1.0
    return items


@program
def deleted_from_a_list_that_grew(x):
    items = [x[0], x[1]]
    if T.sum(x) > 0:
        items.insert(0, x[3])
    del items[0]
    return items, len(items)


@program
def list_returned_from_two_functions(x):
    def parts(v):
        if T.sum(v) > 0:
            return [v, v * 2.0, v * 3.0]
        return [v]
    out = parts(x)
    return len(out), out[-1], [T.sum(p) for p in out] if len(out) == 1 else x


@program
def keys_by_the_data(x):
    table = {}
    for k in range(4):
        if x[k] > 0:
            table[k] = x[k]
    total = T.sum(x) * 0.0
    for key, value in table.items():
        total = total + key * value
    return table, len(table), 2 in table, table.get(1, 0.5), total


@program
def key_error_for_some_data(x):
    table = {"a": x}
    if T.sum(x) > 0:
        table["b"] = x * 2.0
    return table["b"]


@program
def key_deleted_in_a_branch(x):
    table = {"a": x, "b": x * 2.0, "c": x * 3.0}
    if T.sum(x) > 0:
        del table["b"]
    return table, list(table), [k for k in ("a", "b") if k == "a"]


@program
def keys_in_another_order(x):
    table = {}
    if T.sum(x) > 0:
        table["a"] = x
        table["b"] = x * 2.0
    else:
        table["b"] = x
        table["a"] = x * 2.0
    return table


@program
def keys_beside_others(x):
    table = {}
    if T.sum(x) > 0:
        table["a"] = x
        table["c"] = x * 2.0
    else:
        table["b"] = x
        table["c"] = x * 3.0
    return table


@program
def key_set_again_after_others(x):
    table = {}
    if T.sum(x) > 0:
        table["a"] = x
    table["b"] = x
    table["a"] = x * 2.0
    return table


@program
def default_of_a_key(x):
    table = {}
    if T.sum(x) > 0:
        table["a"] = x
    table.setdefault("a", x * 5.0)
    return table


@program
def popped_key_with_default(x):
    table = {"b": x}
    if T.sum(x) > 0:
        table["a"] = x * 2.0
    return table.pop("a", x * 7.0), table


@program
def attribute_deleted_in_a_branch(x):
    class Box:
        size = 3.0
    box = Box()
    box.size = 5.0
    box.other = x
    if T.sum(x) > 0:
        del box.size
    return x * box.size, hasattr(box, "other"), getattr(box, "size", 1.0)


@program
def attribute_error_for_some_data(x):
    class Box:
        pass
    box = Box()
    if T.sum(x) > 0:
        box.value = x
    return box.value


@dataclass
class Track:
    points: list = field(default_factory=list)
    name: str = "track"


@program
def dataclass_with_a_list_that_grows(x):
    track = Track()
    for k in range(3):
        if x[k] > 0:
            track.points.append((k, x[k]))
    return track


@program
def dataclass_in_a_while_loop(x):
    track = Track()
    while T.sum(T.abs(x)) > 1.0:
        track.points.append(x)
        x = x * 0.5
    return track, len(track.points)


@program
def events_of_a_branch(x):
    EVENTS.append("called")
    if T.sum(x) > 0:
        EVENTS.append(T.max(x))
    while T.max(T.abs(x)) > 1.0:
        EVENTS.append(T.min(x))
        x = x * 0.5
    TABLE["calls"] += 1
    if T.sum(x) > 0:
        TABLE["positive"] = T.sum(x)
    return x


@program
def copies_of_a_list_that_grew(x):
    items = [x]
    if T.sum(x) > 0:
        items.append(x * 2.0)
    other, third, both = list(items), copy.copy(items), items + [x * 3.0]
    items.append(x * 4.0)
    return len(other), len(third), both, len(items), tuple(both)


@program
def membership_and_index(x):
    names = ["a"]
    if T.sum(x) > 0:
        names.append("b")
    names.append("c")
    return "b" in names, "c" in names, names.index("c"), names.count("b"), names == ["a", "c"], names != ["a", "b", "c"]


@program
def any_all_and_extremes(x):
    found = []
    for k in range(4):
        if x[k] > 0.7:
            found.append(x[k])
    return max(found, default=T.sum(x)), min(found, key=lambda v: -v, default=None), bool(found)


@program
def list_or_none(x):
    found = [x] if T.sum(x) > 0 else None
    if found is None:
        found = []
    found.append(x * 2.0)
    return found


@program
def enumerated_list_that_grew(x):
    found = []
    for k in range(4):
        if x[k] > 0:
            found.append(x[k])
    total = T.sum(x) * 0.0
    for place, value in enumerate(found):
        total = total + (place + 1) * value
    return total


@program
def loop_left_early_over_a_list_that_grew(x):
    found = []
    for k in range(4):
        if x[k] > 0:
            found.append(x[k])
    for value in found:
        if value > 2.0:
            return value, len(found)
    return T.sum(x), -1


@program
def list_grows_while_it_is_gone_through(x):
    todo, n = [x], 0
    for v in todo:
        if x[n] > 0 and n < 2:
            todo.append(v)
        n += 1
    return n


@program
def choice_of_two_lists_changed(x):
    low, high = [x], [x * 2.0, x * 3.0]
    chosen = low if T.sum(x) > 0 else high
    chosen.append(x * 4.0)
    return len(low), len(high), low[-1], high[-1]


@program
def tuples_of_several_lengths(x):
    shape = ()
    for k in range(3):
        if x[k] > 0:
            shape = (*shape, k)
    return shape, len(shape)


@program
def passed_to_a_function_of_the_users(x):
    def last_two(items):
        return items[-1] + items[-2]
    items = [x, x * 2.0]
    if T.sum(x) > 0:
        items.append(x * 3.0)
    return last_two(items)


@program([V.random(12, 3, seed=1)], [V.random(12, 3, seed=2)], [V.random(12, 3, seed=3)])
def rows_that_fit(rows):
    kept = []
    for row in rows:
        if T.sum(row) > 0:
            kept.append(row)
    return kept, len(kept)


@program([V.random(12, 3, seed=1)], [V.random(12, 3, seed=2)], [V.random(12, 3, seed=3)])
def rows_until_one_is_large(rows):
    kept = []
    for row in rows:
        if T.max(row) > 1.5:
            break
        kept.append(row)
    return kept, len(kept)


@program([scalar(5)], [scalar(7)], [scalar(1)], [scalar(300)])
def many_elements_of_a_loop(n):
    found, k = [], T.sum(n) * 0.0
    while k < n:
        found.append(k)
        k = k + 1.0
    return len(found), found[-1]


@session
def elements_of_one_call_in_the_next(jit):
    class Memory:
        def __init__(self):
            self.kept = []

    memory = Memory()

    @jit
    def step(x):
        if T.sum(x) > 0:
            memory.kept.append(x)
        if len(memory.kept) > 2:
            memory.kept.pop(0)
        return len(memory.kept)
    for values in ((1.0, 2.0), (-1.0, 0.5), (3.0, 1.0), (2.0, 2.0), (-4.0, 1.0), (1.5, 0.0)):
        yield step(T.tensor(values)), list(memory.kept)


@session
def attribute_that_comes_and_goes(jit):
    class Layer:
        def __init__(self, scale):
            self.scale = scale

    layer = Layer(2.0)

    @jit
    def step(x):
        if T.sum(x) > 0:
            layer.cache = x * layer.scale
        elif hasattr(layer, "cache"):
            del layer.cache
        return x + 1.0
    for values in ((-1.0, 0.5), (1.0, 2.0), (3.0, 1.0), (-2.0, 1.0), (-4.0, 1.0), (1.5, 0.0)):
        yield step(T.tensor(values)), dict(vars(layer))
