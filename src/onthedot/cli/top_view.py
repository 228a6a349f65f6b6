"""The lines and tables that ``onthedot top`` draws from one snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.cli.output import Block, Screen
from onthedot.cli.source import pauses_text
from onthedot.observability.log_format import clean
from onthedot.operations.humanize import from_now
from onthedot.operations.live_view import LiveSnapshot
from onthedot.operations.sources import SourceInfo

_BARS = "_▁▂▃▄▅▆▇█"
_MAX_WORKERS = 5  # on a screen of limited height


def picture(out: Screen, title: str, frame: LiveSnapshot, height: int | None = None) -> tuple[list[str], list[Block]]:
    """height: of a screen that cannot scroll; the busiest sources come first."""
    workers = _workers(out, frame, None if height is None else _MAX_WORKERS)
    failures = _failures(out, frame)
    rest = None if height is None else max(3, height - 9 - len(workers[1]) - len(failures[1]))
    return _head(title, frame), [block for block in (_sources(out, frame, rest), workers, failures) if block[1]]


def _head(title: str, frame: LiveSnapshot) -> list[str]:
    ready = sum(each.ready + each.parked for each in frame.sources)
    running = sum(each.running for each in frame.sources)
    failed = sum(each.failed for each in frame.sources)
    rates = [f"{name} {getattr(frame.rates, name):.1f}/s" for name in ("done", "failed", "retried", "started")]
    lines = [
        f"{title} · {frame.at.astimezone().strftime('%H:%M:%S')}",
        " · ".join([*rates, f"{ready} ready", f"{running} running", f"{failed} failed"]),
        f"{sparkline(frame.history)} ended per second, for a minute; most {max(frame.history, default=0)}",
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


def _sources(out: Screen, frame: LiveSnapshot, most: int | None) -> Block:
    def busiest_first(each: SourceInfo) -> tuple[float, int, str]:
        return -frame.by_source[each.name].done, -(each.running + each.ready + each.parked), each.name

    shown = sorted(frame.sources, key=busiest_first)
    rows = [
        [each.name, str(each.ready + each.parked), str(each.running), str(each.scheduled),
         f"{frame.by_source[each.name].done:.1f}", f"{frame.by_source[each.name].failed:.1f}", str(each.failed),
         str(each.workers), pauses_text(out, each)]
        for each in shown[:most]
    ]  # fmt: skip
    if most is not None and len(shown) > most:
        rows.append([f"… {len(shown) - most} more", *[""] * 8])
    return ("SOURCE", "READY", "RUNNING", "SCHEDULED", "DONE/S", "FAILED/S", "FAILED", "WORKERS", "PAUSED"), rows


def _workers(out: Screen, frame: LiveSnapshot, most: int | None) -> Block:
    rows = [
        [each.id, each.host, str(each.pid), str(max(each.concurrency.values(), default=0)), out.when(each.started),
         ", ".join(each.sources)[:60]]
        for each in frame.workers[:most]
    ]  # fmt: skip
    if most is not None and len(frame.workers) > most:
        rows.append([f"… {len(frame.workers) - most} more", *[""] * 5])
    return ("WORKER", "HOST", "PID", "SLOTS", "SINCE", "SOURCES"), rows


def _failures(out: Screen, frame: LiveSnapshot) -> Block:
    rows = [
        [each.uuid, out.when(each.at), each.source, clean(f"{each.type}: {each.message}")[:80]]
        for each in frame.failures
    ]
    return ("FAILED", "WHEN", "SOURCE", "ERROR"), rows
