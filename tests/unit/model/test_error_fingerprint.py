"""Errors with one cause are one group, whatever varies in their messages; two causes are two groups."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest

from onthedot.codec.task_failure import TaskFailure
from onthedot.model.error_fingerprint import error_line, fingerprint, message_template
from tests.unit.operations.error_corpus import CAUSES, errors


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_cause_has_one_group(seed: int) -> None:
    groups: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for cause, error in errors(1000, seed):
        groups[cause].setdefault(fingerprint("import", error), error.message)
    assert {cause: list(found.values()) for cause, found in groups.items() if len(found) > 1} == {}
    assert len({group for found in groups.values() for group in found}) == len(CAUSES) == 7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no order 17 for 'ann'", "no order 4 for 'bob'"),
        ("'O'Brien' is gone", '"Ann \\"the hat\\"" is gone'),
        ("“ann” is gone", "«bob» is gone"),
        ("user 0199c1e2-8a3b-7abc-8def-001122334455", "user 0299C1E28A3B7ABC8DEF001122334466"),
        ("deadbeef lost", "c0ffee1234 lost"),
        ("GET https://a.example/x?y=1 gave nothing", "GET http://[::1]:80/ gave nothing"),
        ("mail to ann@example.com bounced", "mail to bob.b+x@mail.example.org bounced"),
        ("cannot open /var/lib/shop.db", "cannot open ./tmp/a-b/c.d"),
        ("cannot open C:\\Users\\ann\\a.txt", "cannot open D:\\x"),
        ("cannot open report-ann.csv", "cannot open report.csv"),
        ("late since Mon, 16 Nov 2026 01:57:30", "late since 2026-11-16T01:57:30.123+01:00"),
        ("late since Mon Nov 16 01:57:30 2026", "late since 01:57"),
        ("10.0.0.7:80 is down", "fe80::1ff:fe23:4567:890a is down"),
        ("db-primary.internal is down", "api.example.com is down"),
        ("Command '['git', 'clone', 'x']' returned exit status 1", "Command '['ls']' returned exit status 1"),
        ("cannot read b'\\xff \\'' here", "cannot read b'' here"),
        ("commit deadbee is gone", "commit a1b2c3d is gone"),
        ("db-3.eu.internal:5432 is down", "localhost:5432 is down"),
        ("<app.Order object at 0x7f12ab> is closed", "<x.Y at 0x0> is closed"),
        ("gave up after 1 retry, 1 box left", "gave up after 3 retries, 2 boxes left"),
        ("it took 2.5 s", "it took 1,200 ms"),
        ("wants 1.5 MiB", "wants -3%"),
        ("refused: {'id': 1, 'tags': ['a', None], 'x': {}}", 'refused: {"a": [[1, 2], [true, false]], "b": null}'),
        ('refused: {"id": 1, "tags": ["a", {"b": "c', "refused: [1, 2, 3]"),
        ("WHERE id IN (1, 2, 3)", "WHERE id IN (4)"),
        ("VALUES (?, ?, ?) failed", "VALUES (%s) failed"),
        ("VALUES (1, 'a', NULL), (2, 'b', 2.5) failed", "VALUES (1) failed"),
        (
            "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def_ghi expired",
            "token tok_4eC39HqLyjWDarjtT1zdp7dc expired",
        ),
        ("wrong lines:\n- row 1: empty\n- row 17: empty", "wrong lines:\n- row 3: empty"),
    ],
)
def test_messages_that_differ_in_values_are_one_group(one: str, other: str) -> None:
    assert fingerprint("a", TaskFailure("E", one)) == fingerprint("a", TaskFailure("E", other)), (
        message_template(one),
        message_template(other),
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no order 17", "no customer 17"),
        ("[Errno 111] Connect call failed", "[Errno 113] Connect call failed"),
        ("Client error '404 Not Found' for url 'x'", "Client error '429 Too Many Requests' for url 'x'"),
        ("the bank answered with status 500", "the bank answered with status 429"),
        ("ended with exit code 1", "ended with exit code 137"),
        ("Command '['ls']' returned exit status 1", "Command '['ls']' returned exit status 2"),
        ("UNIQUE constraint failed: orders.id", "UNIQUE constraint failed: customers.id"),
        ("it isn't there, don't ask", "it isn't open, don't ask"),
        ("order 1 of 'ann' is paid", "order 1 of 'ann' is sent"),
        ("std::io::Error", "bad::face::Error"),
    ],
)
def test_messages_with_different_causes_are_two_groups(one: str, other: str) -> None:
    assert fingerprint("a", TaskFailure("E", one)) != fingerprint("a", TaskFailure("E", other))


def test_source_and_type_are_part_of_the_group() -> None:
    error = TaskFailure("KeyError", "'x'")
    assert (
        len({fingerprint("a", error), fingerprint("b", error), fingerprint("a", TaskFailure("ValueError", "'x'"))}) == 3
    )


TRACE = """Traceback (most recent call last):
  File "/srv/shop/tasks.py", line {line}, in charge
    {code}
{library}KeyError: 'x'
"""
LIBRARY = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError(s)\n'


def trace(line: int, code: str, library: str = "") -> TaskFailure:
    return TaskFailure("KeyError", "'x'", TRACE.format(line=line, code=code, library=library))


def test_equal_messages_of_different_lines_are_two_groups() -> None:
    """A KeyError has only the missing key as its message."""
    one = trace(17, 'total = order["x"]')
    moved = trace(23, 'total = order["x"]', LIBRARY)
    other = trace(18, 'name = order["y"]')
    assert fingerprint("a", one) == fingerprint("a", moved) != fingerprint("a", other)
    assert error_line(one) == 'charge: total = order["x"]'
    assert error_line(TaskFailure("KeyError", "'x'")) == ""


@pytest.mark.parametrize(
    "part", ["a", "a.", "a1", "'", " '", "/a", "a/", "[", "[…", "1,", "<at 0x", "(?,", "a@", "'\\", "[1]", "1:"]
)
def test_no_message_takes_long_to_group(part: str) -> None:
    """10 KiB of a part: a pattern that backtracks at every letter would take minutes."""
    began = time.process_time()
    message_template(part * (10_000 // len(part)))
    assert time.process_time() - began < 5
