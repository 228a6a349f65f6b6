"""An app on each store, for a web server in the event loop of the test."""

from __future__ import annotations

from tests.support.app_stores import flow_store

__all__ = ["flow_store"]
