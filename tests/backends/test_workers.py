"""Threads that work until nothing is left, and the program that outlives its main thread."""

import threading

import pytest

from tenon.capture.code_monitor import CodeWatch
from tenon.llvm.compile_pool import Workers


def names(prefix):
    return [thread for thread in threading.enumerate() if thread.name == prefix]


def test_they_are_no_more_than_they_may_be_and_end_by_themselves():
    begun, go, workers = threading.Semaphore(0), threading.Event(), Workers(2, "two-workers")

    def work(k):
        begun.release()
        go.wait()
        return k
    jobs = [workers.submit(lambda k=k: work(k)) for k in range(5)]
    begun.acquire(), begun.acquire()
    there = names("two-workers")
    assert len(there) == 2 and not any(job.done for job in jobs)
    go.set()
    assert [job.result() for job in jobs] == [0, 1, 2, 3, 4]
    for thread in there:
        thread.join()
    assert names("two-workers") == [] and workers.submit(lambda: 6).result() == 6


def test_an_error_is_raised_where_the_result_is_wanted():
    job = Workers(1, "one-worker").submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        job.result()


def test_an_interrupt_while_a_thread_starts_leaves_no_job_behind(monkeypatch):
    def interrupt(thread):
        raise KeyboardInterrupt
    workers = Workers(1, "one-worker")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            workers.submit(lambda: 1)
    assert workers.submit(lambda: 2).result() == 2


def test_tenon_starts_its_threads_while_a_function_of_users_is_watched():
    """`vmap` of a function whose first operator was to be compiled hung: the watch stopped the thread's start."""
    with CodeWatch().stopping():
        assert Workers(1, "one-worker").submit(lambda: 42).result() == 42


def test_who_asks_does_the_work_where_no_thread_can_be_started(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    job = Workers(2, "none").submit(threading.current_thread)
    assert job.done and job.result() is threading.current_thread()
