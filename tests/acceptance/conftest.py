"""Fixtures that the files of a row share."""

from tests.acceptance.queues import queue, start, url
from tests.acceptance.scripts import nothing_stays, script
from tests.acceptance.shared import file, hasty, store

__all__ = ["file", "hasty", "nothing_stays", "queue", "script", "start", "store", "url"]
