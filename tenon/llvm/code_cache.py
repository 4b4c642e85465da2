"""Key -> object code, in files that outlive the process.

One file an entry: a magic line, the SHA-256 of the payload, the payload.  Several processes may share the directory:
a file is written under a temporary name and renamed, so a reader sees all of it or nothing.  Whatever is wrong with a
file or with the directory is a miss, never an error: the caller compiles again.

The files are run as code.  So the directory and each file must be the user's own, and nobody else may write to them;
no link is followed.  The directory is opened once, looked at, and used through its descriptor: whoever owns the one
above it may put another in its place, and changes nothing.  What is removed bears names that only this file gives.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
import warnings
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
ENTRY = re.compile(r"[0-9a-f]{64}\.object")
TEMPORARY = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
TO_READ = os.O_RDONLY | NO_LINKS | getattr(os, "O_NONBLOCK", 0)      # a pipe would keep the reader
TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS


def make_key(*parts: str) -> str:
    """One name for all that decides what the code is; no two lists of parts share one."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class CodeCache:
    """Entries in a directory; of none, where it is not one to be trusted."""

    def __init__(self, directory: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        opened = None if directory is None else _opened(directory)
        self._opened: int | None = opened[0] if opened else None
        self._identity = opened[1] if opened else None
        self.directory = directory if opened else None
        self.limit = limit
        self._size: int | None = None   # bytes in the directory, when this process last went through it
        self._added = 0                 # bytes that it has written since
        self._lock = Lock()

    @property
    def folder(self) -> int | None:
        """The descriptor of the directory.  A process that becomes a daemon may have closed it, and given the number
        to something else."""
        with suppress(OSError):
            if self._opened is not None and _identity(os.fstat(self._opened)) == self._identity:
                return self._opened
        return None

    def __del__(self) -> None:
        if hasattr(self, "_opened") and (folder := self.folder) is not None:
            os.close(folder)

    def get(self, key: str) -> bytes | None:
        folder = self.folder
        content = None if folder is None else _read(key + SUFFIX, folder)
        if content is None:
            return None
        payload = content[HEADER:]
        if content[:HEADER] != _header(payload):
            emit("code_cache.damaged", key=key)
            self.discard(key)
            return None
        return payload

    def put(self, key: str, payload: bytes) -> None:
        folder = self.folder
        if folder is None:
            return
        temporary = f"{key}.{secrets.token_hex(8)}.tmp"
        try:
            with open(os.open(temporary, TO_WRITE, 0o600, dir_fd=folder), "wb") as file:
                file.write(_header(payload) + payload)
            os.replace(temporary, key + SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            emit("code_cache.not_written", key=key, error=str(error))
            _remove(temporary, folder)
            return
        self._keep_within_limit(folder, HEADER + len(payload))

    def discard(self, key: str) -> None:
        """Forget an entry."""
        if (folder := self.folder) is not None:
            _remove(key + SUFFIX, folder)

    def _keep_within_limit(self, folder: int, added: int) -> None:
        """Drop the entries unused for longest until a tenth of the limit is free; look only when it may be exceeded."""
        with self._lock:
            self._added += added
            if not self._may_be_exceeded(folder):
                return
            entries = sorted(_entries(folder))
            self._size, self._added = sum(size for _, size, _ in entries), 0
            if self._size <= self.limit:
                return
            for _, size, name in entries:
                if self._size <= self.limit * 9 // 10:
                    break
                _remove(name, folder)
                self._size -= size
        emit("code_cache.trimmed", directory=str(self.directory), size=self._size)

    def _may_be_exceeded(self, folder: int) -> bool:
        if self._size is not None:
            return self._size + self._added > self.limit
        return self._added > self.limit // UNSEEN or _look_is_due(folder)


def _read(name: str, folder: int) -> bytes | None:
    """A file that only the user may have written; the time of last use, by which old entries are dropped, is now."""
    try:
        with open(os.open(name, TO_READ, dir_fd=folder), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_ours(found):
                emit("code_cache.not_ours", name=name)
                return None
            content = file.read()
            with suppress(OSError):
                os.utime(file.fileno())
            return content
    except OSError:
        return None


def _look_is_due(folder: int) -> bool:
    """Whether no process has gone through the directory of late; this one does now."""
    with suppress(OSError):
        if abs(time.time() - os.stat(LOOKED, dir_fd=folder, follow_symlinks=False).st_mtime) < AGAIN:
            return False
    with suppress(OSError):
        descriptor = os.open(LOOKED, os.O_WRONLY | os.O_CREAT | NO_LINKS, 0o600, dir_fd=folder)
        os.utime(descriptor)
        os.close(descriptor)
    return True


def _entries(folder: int) -> Iterator[tuple[float, int, str]]:
    """(time of last use, size, name) of every entry; removes what dead processes left half written."""
    with suppress(OSError), os.scandir(folder) as files:
        for file in files:
            with suppress(OSError):
                found = file.stat(follow_symlinks=False)
                if ENTRY.fullmatch(file.name):
                    yield found.st_mtime, found.st_size, file.name
                elif TEMPORARY.fullmatch(file.name) and time.time() - found.st_mtime > ABANDONED:
                    _remove(file.name, folder)


def _header(payload: bytes) -> bytes:
    return MAGIC + hashlib.sha256(payload).digest()


def _remove(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _opened(directory: Path) -> tuple[int, tuple[int, int]] | None:
    """A directory that is the user's alone: (descriptor, identity); None, and a warning, where there is no such."""
    try:
        if not {os.open, os.unlink, os.rename, os.stat} <= os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise OSError("this system cannot keep hold of a directory")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | NO_LINKS)
        try:
            return folder, _identity(_trusted(folder))
        except OSError:
            os.close(folder)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        emit("code_cache.off", directory=str(directory), error=reason)
        warnings.warn(f"machine code is not kept between processes: {directory} is not used, {reason} (TENON_CACHE "
                      "names another directory, or off)", RuntimeWarning, stacklevel=2)
        return None


def _trusted(folder: int) -> os.stat_result:
    """What the system says of a directory; raises OSError where it is not to be used."""
    found = os.fstat(folder)
    if not _is_ours(found):
        raise OSError("other users could put code into it")
    if not os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=folder):
        raise OSError("it cannot be written to")
    return found


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is_ours(found: os.stat_result) -> bool:
    """Whether a file or directory is the user's, and nobody else may write to it."""
    return found.st_uid == os.geteuid() and not found.st_mode & OTHERS_MAY_WRITE
