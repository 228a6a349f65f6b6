"""Stored failures: one that cannot be read is shown as such."""

from __future__ import annotations

from onthedot.model.failures import decode_failure, encode_reason


def test_failure_that_cannot_be_read_is_shown_as_such() -> None:
    for data in (b"\xff", b"{}", b'{"type": 1}', encode_reason("it did")[:-3]):
        failure = decode_failure(data)
        assert failure is not None
        assert failure.message == f"the stored error cannot be read ({len(data)} bytes)"
