"""Fixtures that the files of a row share."""

from tests.seeds.queues import queue, start, url
from tests.seeds.scripts import nothing_stays, script
from tests.seeds.shared import file, hasty, store

__all__ = ["file", "hasty", "nothing_stays", "queue", "script", "start", "store", "url"]
