"""Object code on disk: what was put comes back whole or not at all, whatever happened in between."""

import os
import threading
import time

import pytest

from tenon.llvm import code_cache
from tenon.llvm.code_cache import CodeCache, make_key

KEY, OTHER = make_key("a"), make_key("b")


def test_what_was_put_comes_back_in_another_process(tmp_path):
    CodeCache(tmp_path / "deep" / "er").put(KEY, b"code")
    assert CodeCache(tmp_path / "deep" / "er").get(KEY) == b"code"
    assert CodeCache(tmp_path / "deep" / "er").get(OTHER) is None


def test_keys_tell_apart_how_the_same_characters_are_divided():
    assert make_key("ab", "c") != make_key("a", "bc") != make_key("abc")


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: b"", lambda c: c[:10], lambda c: c[:-1] + b"X", lambda c: c + b"X"]
)
def test_a_damaged_entry_is_a_miss_and_is_removed(tmp_path, damage):
    cache = CodeCache(tmp_path)
    cache.put(KEY, b"some code")
    (entry,) = tmp_path.glob("*.object")
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get(KEY) is None and not entry.exists()
    cache.put(KEY, b"some code")
    assert cache.get(KEY) == b"some code"


def test_the_entries_unused_for_longest_go_first(tmp_path):
    cache = CodeCache(tmp_path, limit=10_000)
    keys = [make_key(str(number)) for number in range(9)]
    for age, key in enumerate(reversed(keys)):
        cache.put(key, bytes(1000))
        os.utime(tmp_path / f"{key}.object", (time.time() - 1000 + age, time.time() - 1000 + age))
    cache.get(keys[-1])  # the oldest, used just now
    for number in range(9, 12):
        cache.put(make_key(str(number)), bytes(1000))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000
    assert cache.get(keys[-1]) is not None and cache.get(keys[-2]) is None and cache.get(keys[0]) is not None


def test_a_directory_is_gone_through_where_nobody_did_of_late_or_much_was_written(tmp_path, monkeypatch):
    looks, entries = [], code_cache._entries
    monkeypatch.setattr(code_cache, "_entries", lambda folder: looks.append(1) or entries(folder))
    first, second = CodeCache(tmp_path, limit=320_000), CodeCache(tmp_path, limit=320_000)
    first.put(KEY, b"code")
    assert len(looks) == 1
    second.put(KEY, b"code")                # a moment later
    assert len(looks) == 1
    second.put(KEY, bytes(10_000))
    assert len(looks) == 2                  # now it knows
    second.put(KEY, bytes(300_000))
    assert len(looks) == 2
    os.utime(tmp_path / "looked", (0, 0))
    CodeCache(tmp_path).put(KEY, b"code")
    assert len(looks) == 3


def test_what_a_dead_process_left_half_written_is_cleared(tmp_path):
    half, others = tmp_path / f"{KEY}.{'0' * 16}.tmp", tmp_path / "x.tmp"
    for file in (half, others):
        file.write_bytes(b"half")
        os.utime(file, (0, 0))
    CodeCache(tmp_path).put(KEY, b"code")
    assert not half.exists() and others.exists()        # which some other program wrote


def refused(directory):
    """A cache that says once that it does without the directory."""
    with pytest.warns(RuntimeWarning, match="machine code is not kept between processes") as said:
        cache = CodeCache(directory)
    assert len(said) == 1
    return cache


def test_a_directory_that_cannot_be_used_means_no_cache_and_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for cache in (refused(tmp_path / "file" / "cache"), refused(tmp_path / "file"), CodeCache(None)):
        cache.put(KEY, b"code")
        assert cache.get(KEY) is None


def test_a_directory_that_vanishes_means_misses(tmp_path):
    cache = CodeCache(tmp_path / "cache")
    (tmp_path / "cache").rmdir()
    cache.put(KEY, b"code")
    assert cache.get(KEY) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o2770, 0o720, 0o702])
def test_code_is_not_taken_from_a_directory_that_others_may_write_to(tmp_path, mode):
    CodeCache(tmp_path).put(KEY, b"code")
    tmp_path.chmod(mode)
    assert refused(tmp_path).get(KEY) is None


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602])
def test_code_is_not_taken_from_a_file_that_others_may_write_to(tmp_path, mode):
    cache = CodeCache(tmp_path)
    cache.put(KEY, b"code")
    (tmp_path / f"{KEY}.object").chmod(mode)
    assert cache.get(KEY) is None


def test_another_users_directory_and_files_are_not_used(tmp_path, monkeypatch):
    cache, other = CodeCache(tmp_path), os.geteuid() + 1
    cache.put(KEY, b"code")
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert cache.get(KEY) is None
    assert refused(tmp_path).folder is None


def test_no_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir(mode=0o700)
    CodeCache(tmp_path / "there").put(KEY, b"code")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert refused(tmp_path / "link").get(KEY) is None
    cache = CodeCache(tmp_path / "here")
    (tmp_path / "here" / f"{KEY}.object").symlink_to(tmp_path / "there" / f"{KEY}.object")
    assert cache.get(KEY) is None
    cache.put(KEY, b"new")
    assert cache.get(KEY) == b"new" and CodeCache(tmp_path / "there").get(KEY) == b"code"


def test_a_directory_put_in_the_place_of_the_first_is_not_used(tmp_path):
    cache = CodeCache(tmp_path / "cache")
    cache.put(KEY, b"code")
    (tmp_path / "cache").rename(tmp_path / "moved")
    CodeCache(tmp_path / "cache").put(KEY, b"poison")
    abandoned = tmp_path / "cache" / f"{KEY}.{'0' * 16}.tmp"
    abandoned.write_bytes(b"theirs")
    os.utime(abandoned, (0, 0))
    assert cache.get(KEY) == b"code"
    cache._size = 2 * cache.limit                   # so that it goes through the directory
    cache.put(OTHER, b"code")
    assert abandoned.exists() and (tmp_path / "moved" / f"{OTHER}.object").exists()


def test_a_number_that_means_another_directory_by_now_is_not_used(tmp_path):
    cache = CodeCache(tmp_path / "cache")
    cache.put(KEY, b"code")
    (tmp_path / "other").mkdir(mode=0o700)
    number = cache.folder
    other = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(other, number)          # as in a daemon, which closes what it finds open
    os.close(other)
    assert cache.get(KEY) is None
    cache.put(KEY, b"code")
    assert not list((tmp_path / "other").iterdir())
    os.close(number)


def test_a_pipe_among_the_entries_keeps_nobody(tmp_path):
    cache = CodeCache(tmp_path)
    os.mkfifo(tmp_path / f"{KEY}.object", 0o600)
    assert cache.get(KEY) is None


def test_many_writers_and_readers_never_see_half_an_entry(tmp_path):
    payloads = {make_key(str(n)): bytes([n]) * 50_000 for n in range(4)}
    wrong = []

    def use(seed: int) -> None:
        cache = CodeCache(tmp_path, limit=150_000)  # too small for all: entries vanish while others read
        for step in range(40):
            key = list(payloads)[(seed + step) % 4]
            if (found := cache.get(key)) is None:
                cache.put(key, payloads[key])
            elif found != payloads[key]:
                wrong.append(key)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong and not list(tmp_path.glob("*.tmp"))
