"""A schedule as operators see it, read from its record without the code that declared it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from onthedot.clock.epoch import from_optional_ms
from onthedot.codec.body import NO_HEADERS, Headers, Undecodable
from onthedot.codec.untyped import decode_untyped
from onthedot.errors import BadSchedule
from onthedot.operations.schedule_forms import ScheduleForm, form_of
from onthedot.operations.schedule_words import rule_words
from onthedot.operations.workers import WorkerInfo
from onthedot.schedules.stored_rule import StoredRule, decode_rule, rule_text
from onthedot.stores import contract

NO_WORKER = "no worker is running"


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule and its state."""

    name: str
    source: str
    rule: str  # as text
    enabled: bool  # not paused
    next_run: datetime | None  # None: it is over
    last_run: datetime | None
    run_count: int
    owner: Literal["code", "data"]
    orphan: bool = False  # code has declared it, but no live worker has that code: it does not fire
    reason: str = ""  # why it is paused, an orphan or invalid, or that no worker would run its tasks
    args: Mapping[str, object] = field(default_factory=dict[str, object])
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])  # windows that did not run, by cause
    words: str = ""  # the rule, for people who do not read cron
    revision: str = ""  # changes with every edit, not with runs and pauses
    form: ScheduleForm | None = None  # as it can be edited; None: only code can make its rule


def is_orphan(record: contract.Schedule, workers: Sequence[WorkerInfo]) -> bool:
    return bool(record.definition_digest) and not any(record.name in worker.schedules for worker in workers)


def _missing_worker(record: contract.Schedule, source: str, workers: Sequence[WorkerInfo]) -> str:
    """Why no worker would fire it or run its tasks; "" if one would."""
    if not workers:
        return NO_WORKER
    if is_orphan(record, workers):
        return "no worker that runs declares it any more"
    if not any(source in worker.sources for worker in workers):
        return f"no worker that runs knows its source {source!r}"
    return ""


def schedule_info(record: contract.Schedule, workers: Sequence[WorkerInfo]) -> ScheduleInfo:
    stored = StoredRule("", "")
    rule = "?"
    words = ""
    form: ScheduleForm | None = None
    problem = ""
    try:
        stored = decode_rule(record)
        rule = rule_text(stored)
        words = rule if stored.rule is None else rule_words(stored.rule, stored.overlap)
        form = form_of(stored)
    except BadSchedule as error:
        problem = str(error)
    args, headers = _body(stored)
    return ScheduleInfo(
        name=record.name,
        source=stored.source,
        rule=rule,
        enabled=not record.paused,
        next_run=from_optional_ms(record.next_at),
        last_run=from_optional_ms(record.last_at),
        run_count=record.runs,
        owner="code" if record.definition_digest else "data",
        orphan=is_orphan(record, workers),
        reason="; ".join(filter(None, (problem, stored.reason, _missing_worker(record, stored.source, workers)))),
        args=args,
        options=_options(stored, headers),
        skipped=stored.skipped,
        words=words,
        revision=revision_of(stored),
        form=form,
    )


def revision_of(stored: StoredRule) -> str:
    """Names what an edit can change. The revision of the record grows with every run, too."""
    edited = replace(stored, reason="", skipped={})
    return sha256(msgspec.json.encode(edited)).hexdigest()[:16]


def _body(stored: StoredRule) -> tuple[dict[str, object], Headers]:
    try:
        return decode_untyped(stored.body.encode())
    except Undecodable:
        return {}, NO_HEADERS


def _options(stored: StoredRule, headers: Headers) -> dict[str, object]:
    """The options that differ from their defaults, and always overlap, catch_up, grace and priority."""
    rule: dict[str, Any] = {"catch_up": "latest", "grace": 60.0} | dict(stored.rule or {})
    policy = stored.policy
    options: dict[str, object] = {"overlap": stored.overlap, "catch_up": rule["catch_up"], "grace": rule["grace"]}
    options |= {name: rule[name] for name in ("jitter", "start", "end", "tz") if name in rule}
    options |= {"priority": policy.priority}
    more = {
        "expires": (policy.expires or 0) / 1000,
        "tags": list(policy.tags),
        "unique": stored.unique,
        "label": headers.label,
        "metadata": dict(headers.metadata or {}),
    }
    return options | {name: value for name, value in more.items() if value}
