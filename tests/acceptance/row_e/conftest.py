"""Fixtures of the tests of events."""

from tests.acceptance.row_e.event_systems import shared_system, system

__all__ = ["shared_system", "system"]
