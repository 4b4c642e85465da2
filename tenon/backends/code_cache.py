"""Key -> object code, in files that outlive the process.

One file an entry: a magic line, the SHA-256 of the payload, the payload.  Several processes may share the directory:
a file is written under a temporary name and renamed, so a reader sees all of it or nothing.  Whatever is wrong with a
file or with the directory is a miss, never an error: the caller compiles again.  The files are run as code, so a
directory that belongs to another user or that everybody may write to is not used.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tenon.locks import Lock
from tenon.observe import emit

MAGIC = b"tenon object 1\n"
SUFFIX = ".object"
HEADER = len(MAGIC) + hashlib.sha256().digest_size
DEFAULT_LIMIT = 512 * 2**20
ABANDONED = 3600.0  # seconds after which a temporary file belongs to a process that died
LOOKED, AGAIN = "looked", 600.0     # a file as old as the last walk through the directory; how long that one serves
UNSEEN = 32         # of the limit, what a process may write without it: a full directory has 100,000 files


def make_key(*parts: str) -> str:
    """One name for all that decides what the code is; no two lists of parts share one."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class CodeCache:
    def __init__(self, directory: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self.directory = directory if directory is not None and _usable(directory) else None
        self.limit = limit
        self._size: int | None = None   # bytes in the directory, when this process last went through it
        self._added = 0                 # bytes that it has written since
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        if self.directory is None:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        payload = content[HEADER:]
        if content[:HEADER] != _header(payload):
            emit("code_cache.damaged", path=str(path))
            _remove(path)
            return None
        with suppress(OSError):
            os.utime(path)  # the time of last use, by which old entries are dropped
        return payload

    def put(self, key: str, payload: bytes) -> None:
        if self.directory is None:
            return
        path = self._path(key)
        try:
            handle, temporary = tempfile.mkstemp(".tmp", key[:8], self.directory)
        except OSError as error:
            emit("code_cache.not_written", path=str(path), error=str(error))
            return
        try:
            with open(handle, "wb") as file:
                file.write(_header(payload) + payload)
            os.replace(temporary, path)
        except OSError as error:
            emit("code_cache.not_written", path=str(path), error=str(error))
            _remove(Path(temporary))
            return
        self._keep_within_limit(HEADER + len(payload))

    def discard(self, key: str) -> None:
        if self.directory is not None:
            _remove(self._path(key))

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / (key + SUFFIX)

    def _keep_within_limit(self, added: int) -> None:
        """Drop the entries unused for longest until a tenth of the limit is free; look only when it may be exceeded."""
        assert self.directory is not None
        with self._lock:
            self._added += added
            if not self._may_be_exceeded(self.directory):
                return
            entries = sorted(_entries(self.directory))
            self._size, self._added = sum(size for _, size, _ in entries), 0
            if self._size <= self.limit:
                return
            for _, size, path in entries:
                if self._size <= self.limit * 9 // 10:
                    break
                _remove(path)
                self._size -= size
        emit("code_cache.trimmed", directory=str(self.directory), size=self._size)

    def _may_be_exceeded(self, directory: Path) -> bool:
        if self._size is not None:
            return self._size + self._added > self.limit
        return self._added > self.limit // UNSEEN or _look_is_due(directory)


def _look_is_due(directory: Path) -> bool:
    """Whether no process has gone through the directory of late; this one does now."""
    looked = directory / LOOKED
    with suppress(OSError):
        if abs(time.time() - looked.stat().st_mtime) < AGAIN:
            return False
    with suppress(OSError):
        looked.touch()
    return True


def _entries(directory: Path) -> Iterator[tuple[float, int, Path]]:
    """(time of last use, size, path) of every entry; removes what dead processes left half written."""
    with suppress(OSError), os.scandir(directory) as files:
        for file in files:
            with suppress(OSError):
                stat = file.stat(follow_symlinks=False)
                if file.name.endswith(SUFFIX):
                    yield stat.st_mtime, stat.st_size, Path(file.path)
                elif file.name.endswith(".tmp") and time.time() - stat.st_mtime > ABANDONED:
                    _remove(Path(file.path))


def _header(payload: bytes) -> bytes:
    return MAGIC + hashlib.sha256(payload).digest()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _usable(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = directory.stat()
    except OSError as error:
        emit("code_cache.off", directory=str(directory), error=str(error))
        return False
    if os.name == "posix" and (stat.st_uid not in (0, os.geteuid()) or stat.st_mode & 0o002):
        emit("code_cache.off", directory=str(directory), error="other users could put code into it")
        return False
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        emit("code_cache.off", directory=str(directory), error="not writable")
        return False
    return True
