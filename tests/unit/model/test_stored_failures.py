"""Stored failures: one that cannot be read is shown as such."""

from __future__ import annotations

from onthedot.clock.epoch import from_ms
from onthedot.model.failures import decode_failure, encode_failure, encode_reason, with_times


def test_failure_that_cannot_be_read_is_shown_as_such() -> None:
    for data in (b"\xff", b"{}", b'{"type": 1}', encode_reason("it did")[:-3]):
        failure = decode_failure(data)
        assert failure is not None
        assert failure.message == f"the stored error cannot be read ({len(data)} bytes)"


def test_failure_has_the_times_and_the_worker_of_its_run() -> None:
    failure = decode_failure(with_times(encode_failure(KeyError("x"), 2), 1000.9, 2500, "w1"))
    assert failure is not None
    assert (failure.type, failure.message, failure.attempt) == ("KeyError", "'x'", 2)
    assert (failure.started_at, failure.ended_at, failure.worker) == (from_ms(1000), from_ms(2500), "w1")


def test_failure_of_another_version_has_no_times() -> None:
    failure = decode_failure(b'{"type":"KeyError","message":"x","later":1}')
    assert failure is not None
    assert (failure.started_at, failure.ended_at, failure.worker) == (None, None, "")
