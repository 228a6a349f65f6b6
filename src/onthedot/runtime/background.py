"""The worker of an app in a background thread or process, as the process sees it that has started it."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from onthedot.executors.processes.messages import BootMessage
from onthedot.runtime.background_process import BackgroundProcess, require_importable
from onthedot.runtime.user_code import current_location
from onthedot.stores.contract import NewTask
from onthedot.stores.schemes import absolute

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime

_kept: list[Runtime] = []  # until the exit, when their folders are removed


class BackgroundWorker:
    """Starts and stops it. A memory store is replaced by a file that this process removes at exit."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._folder: str = ""  # of the file that replaces a memory store

    def start_process(self) -> BackgroundProcess:
        """Runs the app in another process."""
        runtime = self._runtime
        config = runtime.config
        modules = {source.module for source in runtime.sources} | {config.module, *config.include}
        boot = BootMessage(runtime.name, absolute(runtime.url), current_location(), sorted(modules), hosts=True)
        require_importable(boot)
        if not boot.url.startswith("memory:"):
            return BackgroundProcess(boot, config.stop_timeout, self._folder)
        folder = tempfile.mkdtemp(prefix="onthedot-")
        boot.url = f"sqlite:///{folder}/tasks.db"
        try:
            process = BackgroundProcess(boot, config.stop_timeout, folder)
        except BaseException:
            shutil.rmtree(folder)
            raise
        self._replace_memory_store(boot.url, folder)
        return process

    def _replace_memory_store(self, url: str, folder: str) -> None:
        runtime = self._runtime
        pending: list[NewTask] = []
        if runtime.has_store:
            pending = runtime.portal.run_sync(lambda client: client.operations.pending())
        runtime.disconnect()
        runtime.config = replace(runtime.config, url=url)
        self._folder = folder
        _kept.append(runtime)
        if pending:
            runtime.portal.run_sync(lambda client: client.import_tasks(pending))

    def stop(self, timeout: float | None) -> bool:
        """Stops the process or the thread. True: there was one."""
        host = self._runtime.host
        if not host.stop_process(timeout):
            return host.stop_thread(timeout)
        if self._folder:  # as the stop of a memory store does
            with suppress(RuntimeError):  # at exit no thread can be started any more, and nobody waits
                self._runtime.portal.run_sync(lambda client: client.operations.cancel_pending("shutdown"))
        return True

    def remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def after_fork(self) -> None:
        self._folder = ""  # the parent's to remove
