"""What goes over the pipe between a worker and a pool child: a length, then a message. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from onthedot.stores.contract import Ended, Lease, NewTask, Record, Requeued

T = TypeVar("T")


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
    hosts: bool = False  # not a pool child: it runs the app


class RunMessage(Struct, tag=True, gc=False):
    module: str
    record: Record
    lease: Lease
    deadline: float | None


class KnownQuery(Struct, tag=True):
    """To a background process: is this task known?"""

    name: str
    module: str


class StopMessage(Struct, tag=True):
    timeout: float | None


class ReadyMessage(Struct, tag=True):
    pid: int
    known: list[str] = []


class RefusedMessage(Struct, tag=True):
    """It cannot take tasks: its code cannot be imported, or lifespan() raised. final: this one is not to be found."""

    error: bytes
    final: bool = False


class ProgressMessage(Struct, tag=True):
    done: float
    total: float


class ReturnedMessage(Struct, tag=True, gc=False):
    result: bytes = b""
    adds: tuple[NewTask, ...] = ()
    problem: str = ""  # why the result could not be encoded


class RaisedMessage(Struct, tag=True):
    """Judged in the child, where the class of the error is known."""

    outcome: Requeued | Ended
    error: bytes
    control: str = ""  # Retry, Snooze, Reject, Cancel


class KnownReply(Struct, tag=True):
    problem: str  # "": it is known


class StoppedMessage(Struct, tag=True):
    pass


ToChild: TypeAlias = BootMessage | RunMessage | KnownQuery | StopMessage
FromChild: TypeAlias = (
    ReadyMessage | RefusedMessage | ProgressMessage | ReturnedMessage | RaisedMessage | KnownReply | StoppedMessage
)

_encode = msgspec.msgpack.Encoder().encode_into
read_to_child: Callable[[bytes], ToChild] = msgspec.msgpack.Decoder(ToChild).decode
read_from_child: Callable[[bytes], FromChild] = msgspec.msgpack.Decoder(FromChild).decode


def frame(message: ToChild | FromChild) -> bytearray:
    data = bytearray(4)
    _encode(message, data, 4)
    data[:4] = (len(data) - 4).to_bytes(4, "big")
    return data


class FrameReader(Generic[T]):
    """Bytes in, messages out."""

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
