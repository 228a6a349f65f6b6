"""Fixtures that the files of a row share."""

from tests.acceptance.queues import queue, start, url
from tests.acceptance.scripts import nothing_stays, script
from tests.acceptance.shared import fast_thread_switches, file, store

__all__ = ["fast_thread_switches", "file", "nothing_stays", "queue", "script", "start", "store", "url"]
