"""Calls into C: those that act outside of the program, in arms that are not taken too, and those that only compute."""

# ruff: noqa: F821, F841, B023, E731, C408, C405, SIM115, SIM105, RUF005, RUF012, PERF401, B007

import base64
import bisect
import concurrent.futures
import contextvars
import csv
import datetime
import decimal
import fractions
import functools
import gc
import hashlib
import heapq
import io
import json
import mmap
import multiprocessing
import os
import pickle
import queue
import re
import secrets
import signal
import sqlite3
import statistics
import string
import struct
import sys
import tempfile
import textwrap
import threading
import time
import uuid
import warnings
import zlib

from capture.corpus import T, session


def vector(*numbers):
    """A tensor of these numbers."""
    return T.tensor([float(x) for x in numbers])


@session(not_one_graph="a cache keeps what the capture makes")
def dictionary_kept_by_a_cache(jit):
    @functools.cache
    def cfg():
        return {"k": 1.0}

    f = jit(lambda x: x * cfg()["k"])

    def run():
        out = [f(vector(1)).tolist(), f(vector(1)).tolist()]
        cfg()["k"] = 5.0
        out.append(f(vector(1)).tolist())
        cfg.cache_clear()
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session(not_one_graph="acts on a database")
def row_is_inserted_in_a_branch(jit):
    con = sqlite3.connect(":memory:")
    con.execute("create table t(a)")

    def g(x):
        if x.sum() > 0:
            with con:
                con.execute("insert into t values (1)")
        return x

    f = jit(g)
    yield [(f(vector(k)).tolist(), con.execute("select count(*) from t").fetchone()) for k in (1, -1, 1, -1)]


@session(not_one_graph="acts on a database")
def sum_is_read_from_a_database(jit):
    con = sqlite3.connect(":memory:")
    con.execute("create table t(a)")
    con.execute("insert into t values (1)")
    f = jit(lambda x: x * con.execute("select sum(a) from t").fetchone()[0])

    def run():
        out = [f(vector(1)).tolist()]
        con.execute("insert into t values (5)")
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session(not_one_graph="has state that Python cannot see")
def hash_is_updated(jit):
    h = hashlib.sha256()

    def g(x):
        h.update(b"a")
        return x

    f = jit(g)
    yield [(f(vector(1)).tolist(), h.hexdigest()[:6]) for _ in range(3)]


@session
def hash_of_a_constant(jit):
    f = jit(lambda x: x * int(hashlib.md5(b"abc").hexdigest()[:2], 16))
    yield [f(vector(1)).tolist() for _ in range(3)]


@session(not_one_graph="reads the file system")
def entries_of_a_folder(jit):
    d = tempfile.mkdtemp()
    f = jit(lambda x: x * len(os.listdir(d)))

    def run():
        out = [f(vector(1)).tolist()]
        open(d + "/a", "w").close()
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session(not_one_graph="writes a file")
def pickle_is_appended(jit):
    p = tempfile.mktemp()

    def g(x):
        with open(p, "ab") as fh:
            pickle.dump(1, fh)
        return x

    f = jit(g)
    yield [(f(vector(1)).tolist(), os.path.getsize(p)) for _ in range(3)]


@session
def own_base_exception(jit):
    class Stop(BaseException):
        pass

    n = [0]

    def g(x):
        n[0] += 1
        if x.sum() < 0:
            raise Stop("neg")
        return x * 2

    f = jit(g)

    def call(x):
        try:
            return f(x).tolist()
        except Stop as e:
            return str(e)

    yield [(call(vector(k)), n[0]) for k in (1, -2, 3, -4)]


@session
def exit_is_caught(jit):
    def g(x):
        try:
            if x.sum() < 0:
                sys.exit("neg")
        except SystemExit as e:
            return x * 0
        return x * 2

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, -2, 3, -4)]


@session
def exit_passes_a_finally(jit):
    log = []

    def g(x):
        try:
            log.append("in")
            if x.sum() < 0:
                sys.exit(4)
            return x * 2
        finally:
            log.append("out")

    f = jit(g)

    def call(x):
        try:
            return f(x).tolist()
        except SystemExit as e:
            return e.code

    yield [(call(vector(k)), list(log)) for k in (1, -2, 3, -4)]


@session(not_one_graph="ends the process")
def process_is_ended_in_branches(jit):
    def g(x):
        if T.isnan(x).any():
            raise SystemExit(3)
        if x.sum() < 0:
            os._exit(3)
        if x.sum() < 0:
            os.abort()
        if x.sum() < 0:
            exit(3)
        if x.sum() < 0:
            quit()
        if x.sum() < 0:
            raise KeyboardInterrupt
        return x * 2

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 2, 3)]


@session(not_one_graph="is between threads")
def queue_is_filled(jit):
    q = queue.Queue()

    def g(x):
        q.put(x.shape[0])
        return x * 2

    f = jit(g)

    def run():
        out = []
        for _ in range(3):
            f(vector(1, 2))
            out.append((q.qsize(), q.get_nowait()))
        return out

    yield run()


@session(not_one_graph="is between threads")
def queue_is_filled_in_a_branch(jit):
    q = queue.Queue()
    got = []

    def worker():
        while True:
            v = q.get()
            if v is None:
                return
            got.append(v)

    def g(x):
        if x.sum() > 0:
            q.put(1)
        return x

    f = jit(g)

    def run():
        t = threading.Thread(target=worker, daemon=True)     # it waits for ever where f raises
        t.start()
        for k in (1, 1, -1, 1):
            f(vector(k))
        q.put(None)
        t.join()
        return got

    yield run()


@session(not_one_graph="is between threads")
def event_wakes_a_thread(jit):
    ev = threading.Event()
    res = []

    def g(x):
        ev.set()
        return x * 2

    f = jit(g)

    def run():
        for _ in range(3):
            ev.clear()
            t = threading.Thread(target=lambda: res.append(ev.wait(5)))
            t.start()
            time.sleep(0.02)
            f(vector(1))
            t.join()
        return res

    yield run()


@session(not_one_graph="writes to a pipe")
def pipe_is_written(jit):
    a, b = multiprocessing.Pipe()

    def g(x):
        a.send(x.shape[0])
        return x

    f = jit(g)

    def run():
        out = []
        for _ in range(3):
            f(vector(1, 2))
            out.append(b.recv() if b.poll(1) else None)
        return out

    yield run()


@session(not_one_graph="is between processes")
def shared_array_counts(jit):
    arr = multiprocessing.Array("i", [0, 0])

    def g(x):
        arr[0] += 1
        return x * arr[0]

    f = jit(g)
    yield [f(vector(1)).tolist() for _ in range(3)] + [arr[:]]


@session(not_one_graph="acts on the interpreter")
def garbage_is_collected(jit):
    def g(x):
        gc.collect()
        return x * len(gc.get_threshold())

    f = jit(g)
    yield [f(vector(1)).tolist() for _ in range(3)]


@session(not_one_graph="acts on the interpreter")
def warnings_are_recorded(jit):
    def g(x):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            warnings.warn("hey")
            return x * len(w)

    f = jit(g)
    yield [f(vector(1)).tolist() for _ in range(3)]


@session(not_one_graph="draws numbers")
def random_bytes(jit):
    def g(x):
        return x * len(uuid.uuid4().hex) * (len(secrets.token_bytes(2)))

    f = jit(g)
    yield [f(vector(1)).tolist() for _ in range(3)]


@session
def method_called_send(jit):
    sent = []

    class C:
        def send(self, v):
            sent.append(v)

    c = C()

    def g(x):
        if x.sum() > 0:
            c.send("p")
        else:
            c.send("n")
        return x

    f = jit(g)
    yield [(f(vector(k)).tolist(), list(sent)) for k in (1, -1, 1)]


@session(not_one_graph="writes to a stream")
def csv_row_in_a_branch(jit):
    fd = []
    buf = io.StringIO()
    w = csv.writer(buf)

    def g(x):
        if x.sum() > 0:
            w.writerow([1, 2])
        return x

    f = jit(g)
    yield [(f(vector(k)).tolist(), buf.getvalue()) for k in (1, -1, 1)]


@session(not_one_graph="writes to a stream")
def bytes_in_memory(jit):
    buf = io.BytesIO()

    def g(x):
        buf.write(b"a")
        return x * len(buf.getvalue())

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 1, 1)]


@session
def encoded_and_decoded(jit):
    def g(x):
        return (
            x
            * float(json.loads(json.dumps({"a": 2.0}))["a"])
            * len(base64.b64encode(b"abc"))
            * struct.unpack("<i", struct.pack("<i", 3))[0]
            * zlib.crc32(b"a")
            % 7
        )

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 2, 1)]


@session
def patterns_and_templates(jit):
    pat = re.compile(r"(\d+)")

    def g(x):
        return (
            x
            * int(pat.search("ab12").group(1))
            * len(re.findall("a", "banana"))
            * len(textwrap.wrap("a b c", 1))
            * int(string.Template("$a").substitute(a=3))
        )

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 2, 1)]


@session
def exact_numbers_and_dates(jit):
    def g(x):
        return (
            x
            * statistics.mean([1.0, 2.0])
            * float(decimal.Decimal("1.5") * 2)
            * float(fractions.Fraction(1, 2))
            * bisect.bisect([1, 2, 3], 2)
            * heapq.nsmallest(1, [3, 1])[0]
            * datetime.date(2020, 1, 2).day
        )

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 2, 1)]


@session
def variable_of_the_environment(jit):
    os.environ["ZZR"] = "2"
    f = jit(lambda x: x * float(os.getenv("ZZR", "1")))

    def run():
        out = [f(vector(1)).tolist()]
        os.environ["ZZR"] = "3"
        out.append(f(vector(1)).tolist())
        del os.environ["ZZR"]
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session(not_one_graph="sets the environment")
def variable_of_the_environment_is_set(jit):
    e = []

    def g(x):
        os.environ["ZZQ"] = str(int(os.environ.get("ZZQ", "0")) + 1)
        return x * int(os.environ["ZZQ"])

    os.environ.pop("ZZQ", None)
    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 1, 1)] + [os.environ["ZZQ"]]


@session(not_one_graph="is between threads")
def future_of_a_pool(jit):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    res = []

    def g(x):
        res.append(pool.submit(lambda: 1).result())
        return x * 2

    f = jit(g)

    def run():
        out = [(f(vector(1)).tolist(), len(res)) for _ in range(3)]
        pool.shutdown()
        return out

    yield run()


@session(not_one_graph="raises a signal")
def signal_is_raised(jit):
    signal.signal(signal.SIGUSR2, lambda *a: got.append(1))
    got = []

    def g(x):
        signal.raise_signal(signal.SIGUSR2)
        return x

    f = jit(g)
    yield [(f(vector(k)).tolist(), len(got)) for k in (1, 1, 1)]


@session(not_one_graph="takes a lock")
def lock_stays_taken(jit):
    lock = threading.Lock()

    def g(x):
        if lock.acquire(blocking=False):
            return x
        return x * 0

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 1, 1)] + [lock.locked()]


@session(not_one_graph="looks at a lock")
def lock_is_looked_at(jit):
    lock = threading.Lock()
    f = jit(lambda x: x * 0 if lock.locked() else x)

    def run():
        out = [f(vector(1)).tolist()]
        lock.acquire()
        out.append(f(vector(1)).tolist())
        lock.release()
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session
def lock_is_taken_and_left(jit):
    lock = threading.Lock()
    n = [0]

    def g(x):
        with lock:
            n[0] += 1
        lock.acquire()
        n[0] += 1
        lock.release()
        return x * n[0]

    f = jit(g)
    yield [f(vector(k)).tolist() for k in (1, 1, 1)] + [lock.locked()]


@session(not_one_graph="is between threads")
def which_thread_it_is(jit):
    def g(x):
        return x * (1 if threading.current_thread() is threading.main_thread() else 5)

    f = jit(g)

    def other():
        r = []
        t = threading.Thread(target=lambda: r.append(f(vector(1)).tolist()))
        t.start()
        t.join()
        return r

    yield [f(vector(1)).tolist(), f(vector(1)).tolist(), other()]


@session
def context_variable(jit):
    cv = contextvars.ContextVar("cv", default=1.0)
    f = jit(lambda x: x * cv.get())

    def run():
        out = [f(vector(1)).tolist()]
        t = cv.set(5.0)
        out.append(f(vector(1)).tolist())
        cv.reset(t)
        out.append(f(vector(1)).tolist())
        return out

    yield run()


@session(not_one_graph="acts on the interpreter")
def settings_of_the_interpreter(jit):
    def g(x):
        sys.setrecursionlimit(sys.getrecursionlimit())
        return x * (threading.get_ident() == threading.main_thread().ident)

    f = jit(g)

    def other():
        r = []
        t = threading.Thread(target=lambda: r.append(f(vector(1)).tolist()))
        t.start()
        t.join()
        return r

    yield [f(vector(1)).tolist(), f(vector(1)).tolist(), other()]


@session(not_one_graph="changes memory that others see")
def bytes_of_a_mapped_file(jit):
    m = mmap.mmap(-1, 8)

    def g(x):
        m[0] = m[0] + 1
        return x * m[0]

    f = jit(g)
    yield [f(vector(1)).tolist() for _ in range(3)]
