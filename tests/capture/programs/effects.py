"""Effects: what a call prints, appends, sets and counts, on every call and in order."""

import logging
import random
import time
from collections import Counter

from capture.corpus import T, V, program, session

LOG = []
STATE = {"calls": 0, "last": None}
COUNTER = Counter()
BEST = None


@program
def prints_on_every_call(x):
    print("called with", x.shape)
    return x * 2.0


@program
def prints_in_a_branch(x):
    if T.sum(x) > 0:
        print("positive")
        return x * 2.0
    print("negative")
    return x


@program
def prints_the_value_of_a_tensor(x):
    print("sum is", float(T.sum(x)))
    return x


@program
def prints_where_no_call_shows_it(x):
    list(map(print, ["first", "second"]))
    sorted(["third"], key=print)
    return x * 2.0


@program
def prints_after_a_branch_changed_a_list(x):
    signs = []
    if T.sum(x) > 0:
        signs.append(1)
    print("seen")
    return x * float(len(signs))


@program
def prints_within_two_handlers_of_everything(x):
    signs = []
    try:
        try:
            if T.sum(x) > 0:
                signs.append(1)
            print("seen")
        except:     # noqa: E722
            signs.append(2)
    except:     # noqa: E722
        signs.append(3)
    return x * float(len(signs))


@program
def prints_by_a_function_that_the_data_choose(x):
    say = print if T.sum(x) > 0 else len
    say("seen")
    return x


@program
def prints_in_a_loop(x):
    step = 0
    while T.max(T.abs(x)) > 1.0:
        print("step", step)
        x = x * 0.5
        step += 1
    return x


@program
def appends_to_a_global_list(x):
    LOG.append("called")
    return x * len(LOG)


@program
def appends_a_tensor_to_a_global_list(x):
    LOG.append(T.sum(x))
    return x * 2.0


@program
def appends_in_a_branch(x):
    if T.sum(x) > 0:
        LOG.append("positive")
    else:
        LOG.append("negative")
    return x


@program
def appends_in_a_while_loop(x):
    while T.max(T.abs(x)) > 1.0:
        LOG.append(T.max(x))
        x = x * 0.5
    return x


@program
def sets_items_of_a_global_dictionary(x):
    STATE["calls"] += 1
    STATE["last"] = x * 2.0
    return x + STATE["calls"]


@program
def sets_an_item_in_a_branch(x):
    if T.sum(x) > 0:
        STATE["last"] = T.sum(x)
    return x


@program
def counts_words(x):
    COUNTER["calls"] += 1
    COUNTER.update(["a", "b", "a"])
    return x * COUNTER["a"]


@program
def keeps_the_best_so_far(x):
    global BEST
    score = T.sum(x)
    if BEST is None or score > BEST:
        BEST = score
    return BEST


@program
def order_of_effects(x):
    LOG.append("first")
    y = x * 2.0
    LOG.append("second")
    LOG.insert(0, "zeroth")
    return y if T.sum(x) > 0 else x


@program
def clears_and_fills_again(x):
    LOG.clear()
    for k in range(3):
        LOG.append(k)
    return x * sum(LOG)


@program([[V(1, 2)], V(3, 4)], [[V(5, 6)], V(7, 8)])
def changes_an_argument_list(items, x):
    items[0] = items[0] + x
    return items[0] * 2.0


@program([V(1, 2, 3)], [V(-1, -2, -3)])
def assigns_to_elements_of_a_new_tensor(x):
    y = T.put(x, 1, 10.0)
    return y if T.sum(x) > 0 else T.put(y, 0, -10.0)


@session(not_one_graph="Python's random numbers are drawn")
def draws_random_numbers_of_python(jit):
    random.seed(3)

    @jit
    def f(x):
        return x * random.random()

    x = T.tensor([1.0, 2.0])
    for _ in range(3):
        yield f(x)


@session(not_one_graph="the clock is read")
def reads_the_clock(jit):
    @jit
    def f(x):
        return x + time.perf_counter()

    x = T.tensor([0.0])
    before, after = float(f(x)[0]), float(f(x)[0])
    yield after >= before, before != 0.0


@session
def logs_a_message(jit):
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    logger = logging.getLogger("capture-corpus")
    logger.handlers[:] = [Keep()]
    logger.setLevel("INFO")
    logger.propagate = False

    @jit
    def f(x):
        logger.info("called with %s", x.shape)
        return x * 2.0

    for _ in range(2):
        yield f(T.tensor([1.0, 2.0])), list(records)


@session
def history_of_an_object(jit):
    class Meter:
        def __init__(self):
            self.total, self.count, self.history = T.tensor(0.0), 0, []

        def add(self, value):
            self.total = self.total + value
            self.count += 1
            self.history.append(value)

    meter = Meter()

    @jit
    def f(x):
        meter.add(T.sum(x))
        return meter.total / meter.count

    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        yield f(T.tensor(values)), meter.count, list(meter.history)


@session
def two_names_for_one_list(jit):
    log = []
    alias = log

    @jit
    def f(x):
        log.append("log")
        alias.append("alias")
        return x * len(log)

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0])), list(log)
