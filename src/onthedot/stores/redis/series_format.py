"""Series as the scripts take and return them: the key of an entry is "at:writer", its value "revision:data"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onthedot.stores.contract import SERIES, SeriesEntry


def pack_entries(entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry]) -> list[Any]:
    packed: list[Any] = [len(replaces)]
    for entry in replaces:
        packed += (entry.series, _key(entry), entry.revision)
    for entry in entries:
        packed += (entry.series, _key(entry), entry.at, entry.data)
    return packed


def pack_retention() -> list[Any]:
    packed: list[Any] = []
    for series, retention in SERIES.items():
        packed += (series, *("" if bound is None else bound for bound in (retention.keep, retention.most)))
    return packed


def to_entries(series: str, keys: Sequence[bytes], values: Sequence[bytes]) -> list[SeriesEntry]:
    entries: list[SeriesEntry] = []
    for key, value in zip(keys, values, strict=True):
        at, _, writer = key.decode().partition(":")
        revision, _, data = value.partition(b":")
        entries.append(SeriesEntry(series, int(at), writer, data, int(revision)))
    return entries


def _key(entry: SeriesEntry) -> str:
    return f"{entry.at}:{entry.writer}"
