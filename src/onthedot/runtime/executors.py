"""The executors of a runtime: those that every worker has, and the user's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from onthedot.executors.contract import Executor
from onthedot.executors.event_loop import EventLoopExecutor
from onthedot.executors.processes import Processes
from onthedot.executors.processes.messages import BootMessage
from onthedot.executors.threads import ThreadExecutor
from onthedot.model.executor_names import ASYNC, PROCESS, THREAD
from onthedot.runtime.background_process import CHILD_ENTRY_POINT
from onthedot.runtime.config import RuntimeConfig


def open_executors(
    config: RuntimeConfig, boot_message: Callable[[], BootMessage], stack: AsyncExitStack
) -> dict[str, Executor]:
    """Makes and opens the executors by name. The stack closes them."""
    own: dict[str, Executor] = {
        ASYNC: EventLoopExecutor(),
        THREAD: ThreadExecutor(f"onthedot-{config.name}"),
        PROCESS: Processes(),
    }
    for executor in own.values():
        stack.callback(executor.close)
    executors = own | dict(config.executors)
    for executor in executors.values():
        if isinstance(executor, Processes):
            executor.open(boot_message, CHILD_ENTRY_POINT)
            stack.callback(executor.close)
    return executors


def slots_of(config: RuntimeConfig, executor: Executor) -> int:
    """How many tasks one of the user's own executors runs at once."""
    return executor.slots or config.slots[PROCESS if isinstance(executor, Processes) else ASYNC]
