"""A function in C -> whether calling it may act on, or depend on, anything but its arguments.

Nobody can look into machine code, so what is not listed here as a function of its arguments counts as an act: a graph
would leave it out from the second call on, and do it in an arm that is not taken.  The lists were written by hand, from
knowledge of these modules, not measured: they leave out what reads a clock, draws numbers, or reaches a file, another
thread or process, or state that Python cannot see.  A function that is missing costs speed, and no result.
"""

from __future__ import annotations

import types
from functools import lru_cache
from typing import Any

import numpy as np

HASHES = ("_hashlib", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_blake2")
# Modules all of whose functions and classes in C only compute, but for the names that follow.
COMPUTING = frozenset((
    "builtins", "math", "cmath", "_operator", "operator", "itertools", "_functools", "functools", "_collections",
    "collections", "_struct", "struct", "_json", "_heapq", "_bisect", "_sre", "re", "_string", "unicodedata",
    "binascii", "zlib", "_codecs", "_abc", "_typing", "typing", "types", "_statistics", "_datetime", "datetime",
    "_decimal", "decimal", "_contextvars", "_weakref", "weakref", "_opcode", "_ast", "ast", "_symtable",
    "_tokenize", "_imp", "_signature", "_stat", *HASHES))
ACTING = frozenset((
    "print", "input", "open", "eval", "exec", "globals", "breakpoint", "__import__", "now", "today", "utcnow",
    "getcontext", "setcontext", "localcontext", "cache_info", "cache_clear", "cache_parameters", "update",
    "__subclasses__", "getweakrefcount", "getweakrefs",
    "fromfile", "tofile", "dump", "_get_extobj_dict"))
UPDATED = (dict, set)       # whose `update` is seen in what they hold, unlike that of a hash
NUMPY = ("numpy", "numpy.")
DRAWING = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
IN_PYTHON = (types.FunctionType, classmethod, staticmethod, property)      # which may call the method in C by `super()`
# What only computes in other modules; and what does so where the code of a library asks, and tells a user's too much.
SINGLE = frozenset((
    ("sys", "exit"), ("sys", "intern"), ("sys", "exc_info"), ("sys", "exception"), ("sys", "is_finalizing"),
    ("posix", "fspath"), ("nt", "fspath"), ("_io", "text_encoding"), ("_thread", "allocate_lock"),
    ("_thread", "RLock")))
OF_LIBRARIES = frozenset((
    ("sys", "_getframe"), ("sys", "_getframemodulename"), ("sys", "getrecursionlimit"), ("sys", "getsizeof"),
    ("sys", "getfilesystemencoding"), ("sys", "getfilesystemencodeerrors"), ("sys", "getdefaultencoding"),
    ("sys", "audit"), ("sys", "getprofile"), ("sys", "gettrace"), ("_thread", "get_ident"),
    ("_warnings", "_filters_mutated")))


def keeps_a_state(x: Any) -> bool:
    """Whether an object in C keeps what it was given, as a hash does, and a stream of `zlib`."""
    return type(x).__module__ in (*HASHES, "zlib") or type(x).__name__ == "SRE_Scanner"


def is_impure(function: Any, of_library: bool = False) -> bool:
    """Whether a function in C is not known to do nothing but compute its result from its arguments."""
    name = str(getattr(function, "__name__", ""))
    owner: Any = getattr(function, "__self__", None)
    if owner is None:
        return not _computes(str(getattr(function, "__module__", "")), name, of_library)
    if isinstance(owner, types.ModuleType):
        return not _computes(owner.__name__, name, of_library)
    return not _is_computed_by(owner if isinstance(owner, type) else type(owner), name)


@lru_cache(maxsize=4096)
def _computes(module: str, name: str, of_library: bool) -> bool:
    """Whether a function of a module only computes."""
    if (module, name) in SINGLE or (of_library and (module, name) in OF_LIBRARIES):
        return True
    return name not in ACTING and (module in COMPUTING or module.startswith(NUMPY))


@lru_cache(maxsize=4096)
def _is_computed_by(cls: Any, name: str) -> bool:
    """Whether a method, of a class in C that `cls` is or inherits from, only computes."""
    base = next((base for base in cls.__mro__ if name in vars(base) and not isinstance(vars(base)[name], IN_PYTHON)),
                object)
    if base.__name__ == "ContextVar":
        return name == "get"
    if issubclass(base, DRAWING) or (name in ACTING and not (name == "update" and issubclass(base, UPDATED))):
        return False
    module = str(base.__module__)
    return module in COMPUTING or module.startswith(NUMPY)
