"""Where tensors lie and programs run: the names of devices, how many there are, the block that places what it makes.

    "cpu", "cpu:0"      one place, where everything is unless the program says something else
    "cpu:1" ...         logical devices of this process, each with memory and worker threads of its own
    "python"            where Python's own functions run, beside the others; no tensor lies there

There are as many logical devices as TENON_DEVICES or `tn.set_devices` says.  A backend that is registered may add a
kind of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tenon.config import MAX_DEVICES, config
from tenon.errors import ArgumentError, DTypeError
from tenon.types import DType, as_dtype

_counts: dict[str, int] = {}        # of the kinds that backends add, and of "cpu" where `set_devices` was called
_known: dict[str, Device] = {}
KINDS = {"cpu", "python"}


class Device(str):
    """A device by its name: `tn.device("cpu:1")`, or `tn.device("cpu", 1)`.

    What is made in its block lies there, and so does what is computed from that.  Raises ArgumentError where there is
    no such device.

    >>> tn.set_devices(2)
    >>> with tn.device("cpu:1"):
    ...     x = tn.ones(2)
    >>> (x * 2).device, x.cpu().device
    ('cpu:1', 'cpu')
    >>> tn.set_devices(1)
    """

    __slots__ = ()

    def __new__(cls, type: Any = "cpu", index: Any = None) -> Device:
        return as_device(type if index is None else f"{type}:{index}")

    @property
    def type(self) -> str:
        """The kind of the device: "cpu"."""
        return self.partition(":")[0]

    @property
    def index(self) -> Any:
        """Which of its kind it is; None where the name does not say."""
        _, colon, number = self.partition(":")
        return int(number) if colon else None

    def __eq__(self, other: object) -> bool:
        """`cpu` and `cpu:0` are one place."""
        if isinstance(other, Device):
            return self is other or str.__eq__(self, other)
        return isinstance(other, str) and str.__eq__(self, _canonical(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (str(self),)

    def __enter__(self) -> Device:
        around = _placing.get()
        _placing.set(((self, _blocks[-1][0](self) if _blocks else None), *around))
        return self

    def __exit__(self, *exception: object) -> None:
        before = _placing.get()[0][1]
        _placing.set(_placing.get()[1:])
        if _blocks:
            _blocks[-1][1](before)


def _named(name: str) -> Device:
    """The one object of a name in its only form."""
    found = _known.get(name)
    return found if found is not None else _known.setdefault(name, str.__new__(Device, name))


_placing: ContextVar[tuple[tuple[Device, Any], ...]] = ContextVar("placing", default=())
_blocks: list[tuple[Callable[[Device], Any], Callable[[Any], None]]] = []    # what is told of blocks
HOST = _named("cpu")            # the first one, where tensors have plain memory
PYTHON = _named("python")


def when_placing(enter: Callable[[Device], Any], leave: Callable[[Any], None]) -> None:
    """Let whoever evaluates operators know of blocks; `leave` is given what `enter` returned."""
    _blocks.append((enter, leave))


def placing() -> Device | None:
    """The device of the innermost block that tensors lie on; None outside of any."""
    for device, _ in _placing.get():
        if device is not PYTHON:
            return device
    return None


def on_python() -> bool:
    """Whether the innermost block is that of the device `python`."""
    blocks = _placing.get()
    return bool(blocks) and blocks[0][0] is PYTHON


def as_device(device: Any) -> Device:
    """The device that a name stands for; raises ArgumentError where there is none."""
    if type(device) is Device:
        return device
    if isinstance(device, str) and (name := _canonical(device)) in {*devices(), PYTHON}:
        return _named(name)
    raise ArgumentError(f"there is no device {device!r}", hint=f"the devices are {', '.join(devices())}"
                        + ("; tn.set_devices(n) says how many there are" if _is_logical(device) else ""))


def check_device(device: Any) -> Device | None:
    """The device where a tensor is to lie, or None for wherever tensors are made; raises ArgumentError if none can."""
    if device is None:
        return None
    found = as_device(device)
    if found is PYTHON:
        raise ArgumentError("no tensor lies on the device python: Python's functions run there",
                            hint=f"tensors lie on {', '.join(devices()[:-1])}")
    return found


def _canonical(name: str) -> str:
    """`cpu:0` is `cpu`, and the first of every other kind too has the kind's name."""
    return name.removesuffix(":0") if ":" in name else name


def _is_logical(device: Any) -> bool:
    kind, _, number = str(device).partition(":")
    return kind == "cpu" and number.isdigit() and str(int(number)) == number


def device_count() -> int:
    """How many logical devices there are."""
    return _counts.get("cpu") or config().devices


def set_devices(count: int) -> None:
    """Have so many logical devices from now on, `cpu:0` to `cpu:n-1`; TENON_DEVICES says it from outside.

    Tensors on devices that are no more among them stay where they are.  Raises ArgumentError unless 1 <= count <= 1024.

    >>> tn.set_devices(2)
    >>> tn.devices()
    ('cpu', 'cpu:1', 'python')
    >>> tn.set_devices(1)
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_DEVICES:
        raise ArgumentError(f"set_devices: {count!r} is not a whole number from 1 to {MAX_DEVICES}")
    _counts["cpu"] = count


def devices() -> tuple[Device, ...]:
    """Every device there is: the logical ones, those of backends that were registered, and `python`."""
    kinds = {"cpu": device_count()} | {kind: n for kind, n in _counts.items() if kind != "cpu"}
    return (*(_named(kind if k == 0 else f"{kind}:{k}") for kind, n in kinds.items() for k in range(n)), PYTHON)


def add_kind(kind: str, count: int) -> None:
    """Have `count` devices of a kind of a backend's own; none for 0."""
    if count:
        _counts[kind] = count
        KINDS.add(kind)
    else:
        _counts.pop(kind, None)
        KINDS.discard(kind)


def among(*given: Any) -> tuple[DType | None, Device | None]:
    """The element type and the device among what says either; raises ArgumentError for what is neither.

    >>> among("cpu", "float16")
    (tenon.float16, 'cpu')
    """
    dtype, device = None, None
    for x in given:
        try:
            if isinstance(x, str) and x.partition(":")[0] in KINDS:
                device = check_device(x)
            else:
                dtype = dtype if x is None else as_dtype(x)
        except DTypeError:
            raise ArgumentError(f"{x!r} is no element type, and no device",
                                hint=f"the devices are {', '.join(devices())}") from None
    return dtype, device
