"""The same rule has the same name in Python, Lua and PL/pgSQL, so that a reader can compare it side by side."""

from __future__ import annotations

import re

import pytest

from tests.support.source_files import SOURCE

STORES = SOURCE / "stores"
DEFINITIONS = {
    "Python": ("rules/*.py", r"^ *def _?(\w+)"),
    "Lua": ("redis/lua/**/*.lua", r"(?:function |^local )(\w+)(?:\(| = \(function)"),
    "PL/pgSQL": ("postgres/functions/*.sql", r"FUNCTION (\w+)_v\d"),
}
RULES = (
    # places
    "next_place", "enter", "park", "queue_chore", "end_as_chore", "requeue",
    # insert and unique keys
    "add", "replace",
    # limits and lanes
    "source_capacity", "level", "spend", "may_start", "admit", "refill_lanes", "release_capacity",
    # claim, alarms and sessions
    "claim", "idle_sources", "next_in", "promote", "reap_overdue", "reap_session", "release_session",
    # records and waits
    "expiry", "end_waits",
)  # fmt: skip
SET_BASED = {  # a statement of PL/pgSQL settles many at once, and its name says so
    "requeue_outcome": "requeue_outcomes",
    "late_verdict": "verdicts",
    "take_key": "take_keys",
}
OUTBOX = (  # Redis has none
    "publish", "relay", "share", "read_log", "commit_positions", "complete_handles", "is_over", "is_met", "as_seen",
    "create_handle",
)  # fmt: skip
VERBS = (
    "cancel",
    "lift",
    "adopt",
    "revive",
    "heartbeat",
    "close_session",
    "subscribe",
    "put_schedules",
    "fire",
    "signal",
)


def defined(language: str) -> set[str]:
    pattern, definition = DEFINITIONS[language]
    files = list(STORES.glob(pattern))
    assert files
    return {name for file in files for name in re.findall(definition, file.read_text("utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("language", DEFINITIONS)
def test_every_rule_has_its_name_in_every_language(language: str) -> None:
    expected = {SET_BASED.get(rule, rule) if language == "PL/pgSQL" else rule for rule in (*RULES, *SET_BASED)}
    assert expected - defined(language) == set()


@pytest.mark.parametrize("language", ["Python", "PL/pgSQL"])
def test_rules_of_the_outbox_have_the_same_name(language: str) -> None:
    assert set(OUTBOX) - defined(language) == set()


def test_every_verb_is_a_rule_a_script_and_a_function() -> None:
    scripts = {file.stem for file in STORES.glob("redis/lua/verbs/*.lua")}
    assert set(VERBS) - scripts == set()
    assert set(VERBS) - defined("Python") == set()
    assert set(VERBS) - defined("PL/pgSQL") == set()
