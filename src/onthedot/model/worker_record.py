"""The record that a worker keeps of itself in the series "workers": one per session and minute."""

from __future__ import annotations

import msgspec
from msgspec import Struct

WORKERS = "workers"  # the series
MAX_RUNS = 50  # that a record names


class WorkerRecord(Struct, omit_defaults=True, kw_only=True):
    """One minute of a worker. It is written again every ten seconds, so it also shows what a dead worker left.

    written: when, in ms; done, failed: tasks that ended in this minute, and those of them that failed
    rss: resident memory in bytes; loop_lag: of its event loop, p99 of the last minute in ms
    clock_offset: ms by which its clock is ahead of the store's
    runs: uuids of its running tasks, those that it claimed first; run_count: of all of them
    is_closed: it has stopped, and holds no task
    """

    written: int = 0
    host: str = ""
    pid: int = 0
    version: str = ""
    release: str = ""
    done: int = 0
    failed: int = 0
    rss: int | None = None
    loop_lag: float | None = None
    clock_offset: float | None = None
    runs: list[str] = []
    run_count: int = 0
    is_closed: bool = False


_decode = msgspec.json.Decoder(WorkerRecord).decode
_encode = msgspec.json.Encoder().encode


def encode_worker_record(record: WorkerRecord) -> bytes:
    return _encode(record)


def decode_worker_record(data: bytes) -> WorkerRecord:
    """A record that cannot be read, of another version, is empty."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return WorkerRecord()
