"""The name of this version changes with any line of the source, though files are read only when they were changed."""

import os

import pytest

from tenon.llvm import fingerprint, machine_code
from tenon.llvm.code_cache import CodeCache


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two files, long unchanged."""
    cache = CodeCache(tmp_path / "cache")
    monkeypatch.setattr(machine_code, "_disk", lambda: cache)
    monkeypatch.setattr(fingerprint, "SETTLING_SECONDS", -1e9)
    source = tmp_path / "package"
    (source / "inner").mkdir(parents=True)
    for name in ("one.py", "inner/two.py"):
        (source / name).write_text("x = 1\n")
    monkeypatch.setattr(fingerprint, "PACKAGE", str(source))
    return source


def now() -> str | None:
    return fingerprint._of_sources.__wrapped__()


def test_it_is_the_same_until_a_file_changes(package, monkeypatch):
    before = now()
    read = []
    monkeypatch.setattr(fingerprint, "_digest", lambda files: read.append(files) or "read again")
    assert now() == before and not read
    (package / "inner" / "two.py").write_text("x = 22\n")
    assert now() == "read again"


@pytest.mark.skipif(os.name == "nt", reason="Windows does not say when a file was changed, whatever its own time says")
def test_a_change_of_the_same_size_and_time_is_seen(package):
    file = package / "one.py"
    before, stat = now(), file.stat()
    while file.stat().st_ctime_ns == stat.st_ctime_ns:      # the system's clock ticks a few hundred times a second
        file.write_text("y = 1\n")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert now() != before


def test_files_that_changed_just_now_are_read_again(package, monkeypatch):
    monkeypatch.setattr(fingerprint, "SETTLING_SECONDS", 1e9)
    now()
    monkeypatch.setattr(fingerprint, "_digest", lambda files: "read again")
    assert now() == "read again"


def test_what_is_damaged_on_disk_is_read_again(package, tmp_path):
    before = now()
    for file in (tmp_path / "cache").glob("*.object"):
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert now() == before


def test_there_is_none_where_nothing_can_be_read(package, monkeypatch, tmp_path):
    monkeypatch.setattr(fingerprint, "PACKAGE", str(tmp_path / "nowhere"))
    assert now() is None
