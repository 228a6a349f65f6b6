"""The messages between a worker and a pool child: a length, then msgpack. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from onthedot.stores.contract import Ended, Lease, NewEvent, NewTask, Record, Requeued

T = TypeVar("T")
Control: TypeAlias = Literal["", "Retry", "Snooze", "Reject", "Cancel"]
"""Which task control an error is; "" for any other error."""


class CodeLocation(Struct):
    """Where a process has its code from, so that another can import it."""

    path: list[str]
    argv: list[str]
    cwd: str
    name: str | None  # of `python -m name`
    file: str | None  # of `python file`

    @property
    def has_script(self) -> bool:
        return self.name is not None or self.file is not None


class BootMessage(Struct, tag=True):
    """The first message to a child: what it must know before it can take a task."""

    app: str
    url: str
    code: CodeLocation
    modules: list[str]  # where tasks are declared; "__main__" is the script
    memory_limit: int | None = None
    hosts: bool = False  # a background process that runs the app, not a pool child


class RunMessage(Struct, tag=True, gc=False):
    """Run this task."""

    module: str
    record: Record
    lease: Lease
    deadline: float | None
    trace: tuple[str, str] | None = None  # of the span of the run: parent and state


class KnownQuery(Struct, tag=True):
    """Asks a background process whether it knows this task."""

    name: str
    module: str


class StopMessage(Struct, tag=True):
    """To a background process: stop; running tasks get `timeout` seconds."""

    timeout: float | None


class ReadyMessage(Struct, tag=True):
    """The child has imported its code and takes tasks."""

    pid: int
    known: list[str] = []  # sources that a background process knows


class RefusedMessage(Struct, tag=True):
    """The child cannot run tasks, because the import of its code or lifespan() failed; or it cannot find this one."""

    error: bytes


class ProgressMessage(Struct, tag=True):
    """The running task called ``ctx.progress``."""

    done: float
    total: float


class ReturnedMessage(Struct, tag=True, gc=False):
    """The task returned."""

    result: bytes = b""
    adds: tuple[NewTask, ...] = ()
    events: tuple[NewEvent, ...] = ()
    problem: str = ""  # why the result could not be encoded


class RaisedMessage(Struct, tag=True):
    """The task raised. The child decides on the outcome, because it knows the class of the error."""

    outcome: Requeued | Ended
    error: bytes
    control: Control = ""


class KnownReply(Struct, tag=True):
    """The answer to `KnownQuery`."""

    problem: str  # empty if the task is known


class StoppedMessage(Struct, tag=True):
    """The background process has stopped."""


ToChild: TypeAlias = BootMessage | RunMessage | KnownQuery | StopMessage
FromChild: TypeAlias = (
    ReadyMessage | RefusedMessage | ProgressMessage | ReturnedMessage | RaisedMessage | KnownReply | StoppedMessage
)

_encode = msgspec.msgpack.Encoder().encode_into
read_to_child: Callable[[bytes], ToChild] = msgspec.msgpack.Decoder(ToChild).decode
read_from_child: Callable[[bytes], FromChild] = msgspec.msgpack.Decoder(FromChild).decode


def frame(message: ToChild | FromChild) -> bytearray:
    """A message with its length in front."""
    data = bytearray(4)
    _encode(message, data, 4)
    data[:4] = (len(data) - 4).to_bytes(4, "big")
    return data


class FrameReader(Generic[T]):
    """Splits a stream of bytes into messages."""

    def __init__(self, read: Callable[[bytes], T]) -> None:
        self._read = read
        self._data = bytearray()

    def feed(self, data: bytes) -> Generator[T, None, None]:
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            message = bytes(self._data[4:end])
            del self._data[:end]
            yield self._read(message)
