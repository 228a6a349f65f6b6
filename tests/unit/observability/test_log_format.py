"""Text of tasks and stores forges no log line and controls no terminal."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest

from onthedot.observability.log_format import (
    ConsoleFormatter,
    JsonFormatter,
    clean,
    clean_lines,
    print_error,
    print_line,
)

FORGED = "12:00:00 INFO    [done] task 1 from refund"
CORPUS = {
    "newline": f"no order\n{FORGED}",
    "carriage return": f"no order\r{FORGED}",
    "vertical tab and form feed": f"no order\x0b\x0c{FORGED}",
    "file separators": f"no order\x1c\x1d\x1e{FORGED}",
    "line separators": f"no order\x85\u2028\u2029{FORGED}",
    "clear the screen": "\x1b[2J\x1b[H",
    "title of the window": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://example.org\x1b\\click\x1b]8;;\x1b\\",
    "C1 escape": "\x9b2J",
    "backspace": "good\b\b\b\bevil",
    "right to left": "\u202egnp.exe",
    "invisible": "a\u200bb\u2066c\ufeff",
    "lone surrogate": "scan-\udcff.pdf",
    "NUL and DEL": "a\x00b\x7f",
    "tag characters": "\U000e0041",
}


def record(text: str, *, in_error: bool) -> logging.LogRecord:
    if not in_error:
        return logging.LogRecord("onthedot.task", logging.ERROR, "", 1, "[fail] task 2 from a: %s", (text,), None)
    try:
        raise ValueError(text)
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    return logging.LogRecord("onthedot.task", logging.ERROR, "", 1, "[fail] task 2 from a", (), info)


@pytest.mark.parametrize("in_error", [False, True], ids=["message", "traceback"])
@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_console_line_is_printable_and_only_its_first_line_looks_like_one(text: str, in_error: bool) -> None:
    shown = ConsoleFormatter(colours=False).format(record(text, in_error=in_error))
    first, *rest = shown.split("\n")
    assert re.match(r"\d\d:\d\d:\d\d ERROR   \[fail\] task 2", first)
    assert [line for line in rest if not line.startswith("  ")] == []
    assert [line for line in (first, *rest) if not line.isprintable()] == []


@pytest.mark.parametrize("in_error", [False, True], ids=["message", "traceback"])
@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_json_line_is_printable_and_has_the_whole_text(text: str, in_error: bool) -> None:
    shown = JsonFormatter().format(record(text, in_error=in_error))
    assert shown.isprintable()
    line = json.loads(shown)
    assert text.encode("utf-8", "backslashreplace").decode() in line["traceback" if in_error else "message"]


def test_json_line_with_fields_of_any_kind_is_written() -> None:
    entry = record("x", in_error=False)
    entry.worker = Exception("w\udcff\x9b")
    assert json.loads(JsonFormatter().format(entry))["worker"] == "w\\udcff\x9b"


def test_plain_text_stays_as_it_is() -> None:
    assert clean("größe: 5 €, 日本 🙂") == "größe: 5 €, 日本 🙂"
    assert clean_lines("a\n\tb", indent="  ") == "a\n  \tb"


class Writes(io.StringIO):
    """Notes what each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def test_line_is_written_by_one_call_so_that_processes_do_not_mix_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = Writes()
    monkeypatch.setattr(sys, "stdout", writes)
    monkeypatch.setattr(sys, "stderr", writes)
    print_line("worker ready")
    print_line("worker ready", "json")
    print_error("no store")
    assert [text[-1] for text in writes.texts] == ["\n"] * 3
    assert writes.texts[0] == "worker ready\n"
    assert json.loads(writes.texts[1])["message"] == "worker ready"
    assert writes.texts[2] == "onthedot: no store\n"
