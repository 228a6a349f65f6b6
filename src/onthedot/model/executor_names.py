"""The names of the built-in executors, in options and as keys of slots."""

from __future__ import annotations

from typing import Final

ASYNC: Final = "async"  # the event loop
THREAD: Final = "thread"
PROCESS: Final = "process"
BUILT_IN: Final = (ASYNC, THREAD, PROCESS)
