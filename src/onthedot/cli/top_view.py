"""The lines and tables that ``onthedot top`` draws from one snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.cli.output import Screen, short_ids, text_table, visible
from onthedot.cli.source import pauses_text, run_times_text
from onthedot.cli.table import Column, TextTable, cut, number
from onthedot.observability.log_format import clean
from onthedot.operations.humanize import from_now
from onthedot.operations.live_view import LiveSnapshot
from onthedot.operations.sources import SourceInfo

_BARS = "_▁▂▃▄▅▆▇█"
_MAX_WORKERS = 5  # on a screen of limited height
_MAX_ERROR = 200  # characters shown


def picture(
    out: Screen, title: str, frame: LiveSnapshot, height: int | None = None
) -> tuple[list[str], list[TextTable]]:
    """height: of a screen that cannot scroll; the busiest sources come first."""
    workers = _workers(out, frame, None if height is None else _MAX_WORKERS)
    failures = _failures(out, frame)
    notes = sum(bool(each.paused or each.paused_keys) for each in frame.sources)
    rest = None if height is None else max(3, height - 10 - notes - len(workers.rows) - len(failures.rows))
    tables = (_sources(out, frame, rest), workers, failures)
    return _head(out, title, frame), [table for table in tables if table.rows]


def _head(out: Screen, title: str, frame: LiveSnapshot) -> list[str]:
    ready = sum(each.ready + each.parked for each in frame.sources)
    running = sum(each.running for each in frame.sources)
    failed = sum(each.failed for each in frame.sources)
    scheduled = sum(each.scheduled for each in frame.sources)
    waiting = sum(each.waiting for each in frame.sources)
    counts = [f"{ready} ready", f"{running} running", f"{scheduled} scheduled", f"{failed} failed"]
    if waiting:
        counts.insert(3, f"{waiting} waiting")
    rates = [f"{name} {getattr(frame.rates, name):.1f}/s" for name in ("done", "failed", "retried", "started")]
    lines = [
        f"{out.moment(frame.at)} · {title}",
        " · ".join(counts),
        " · ".join(rates),
        f"{sparkline(frame.history)} ended/s, most {max(frame.history, default=0)}",
    ]
    if frame.trouble and frame.since is not None:
        duration = from_now(frame.since).removesuffix(" ago")
        lines.append(f"the store does not answer ({duration}), trying again: {clean(frame.trouble)}")
    return lines


def sparkline(values: Sequence[int]) -> str:
    """
    >>> sparkline([0, 1, 4, 8])
    '_▁▄█'
    """
    most = max(values, default=0) or 1
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // most)] for value in values)


def _sources(out: Screen, frame: LiveSnapshot, most: int | None) -> TextTable:
    def busiest_first(each: SourceInfo) -> tuple[float, int, str]:
        return -frame.by_source[each.name].done, -(each.running + each.ready + each.parked), each.name

    shown = sorted(frame.sources, key=busiest_first)
    rows = [
        [each.name, str(each.ready + each.parked), str(each.running), str(each.scheduled),
         f"{frame.by_source[each.name].done:.1f}", f"{frame.by_source[each.name].failed:.1f}", str(each.failed),
         *run_times_text(each), str(each.workers)]
        for each in shown[:most]
    ]  # fmt: skip
    pauses = {place: pauses_text(out, each) for place, each in enumerate(shown[:most])}
    columns = (
        Column("SOURCE", least=12), number("READY"), number("RUN"), number("SCHED"), number("DONE/S"),
        number("FAIL/S", drop=1), number("FAILED"), number("P50"), number("P95"), number("WORKERS", drop=2),
    )  # fmt: skip
    if most is not None and len(shown) > most:
        rows.append([f"… {len(shown) - most} more", *[""] * (len(columns) - 1)])
    return text_table(columns, rows, {place: [f"paused {text}"] for place, text in pauses.items() if text})


def _workers(out: Screen, frame: LiveSnapshot, most: int | None) -> TextTable:
    workers = frame.workers[:most]
    rows = [
        [worker, each.host, str(each.pid), str(max(each.concurrency.values(), default=0)), out.when(each.started),
         ", ".join(each.sources)]
        for worker, each in zip(short_ids([each.id for each in workers]), workers, strict=True)
    ]  # fmt: skip
    if most is not None and len(frame.workers) > most:
        rows.append([f"… {len(frame.workers) - most} more", *[""] * 5])
    columns = (
        "WORKER", Column("HOST", least=8), number("PID"), number("SLOTS"), "SINCE", Column("SOURCES", least=16),
    )  # fmt: skip
    return text_table(columns, rows)


def _failures(out: Screen, frame: LiveSnapshot) -> TextTable:
    rows = [
        [uuid, out.when(each.at), each.source, cut(visible(f"{each.type}: {each.message}"), _MAX_ERROR)]
        for uuid, each in zip(short_ids([each.uuid for each in frame.failures]), frame.failures, strict=True)
    ]
    return text_table(("FAILED", "WHEN", Column("SOURCE", least=8), Column("ERROR", least=16)), rows)
