"""The source of the tasks that coordinate the batches of one task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onthedot.batches.coordinator import BatchWorker, Coordinator
from onthedot.batches.policy import BatchPolicy
from onthedot.codec.body import NO_HEADERS, Headers, ResultNotEncodable
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.new_task import TaskOwner
from onthedot.flows.builtin import BuiltinSource
from onthedot.model.batch_names import coordinator_source
from onthedot.model.context import current_run
from onthedot.model.options import ResolvedOptions
from onthedot.model.stored_batches import StoredPart, decode_request, write_part
from onthedot.model.streams import STREAM_KEEP, StreamedItems

PRIORITY = 10


class CoordinatorSource(BuiltinSource):
    """The source ``<task>:batch``.

    find: the definition of another task of the app, for the fallback; None: its code is not known here
    worker: of this process, while one runs
    """

    def __init__(
        self,
        definition: FunctionDefinition,
        policy: BatchPolicy,
        find: Callable[[str], FunctionDefinition | None],
        worker: Callable[[], BatchWorker],
    ) -> None:
        super().__init__(
            coordinator_source(definition.name), {"max_retries": 3, "max_crashes": 10, "priority": PRIORITY}
        )
        self.module: str = definition.module
        self.owner: TaskOwner | None = definition.owner
        self.definition: FunctionDefinition = definition
        self.policy: BatchPolicy = policy
        self.find: Callable[[str], FunctionDefinition | None] = find
        task = definition.options
        self.options: ResolvedOptions = replace(
            self.options,
            max_crashes=max(self.options.max_crashes, task.max_crashes),
            keep=max(task.keep, STREAM_KEEP),
            keep_failed=max(task.keep_failed, STREAM_KEEP),
            keep_result=max(task.keep, task.keep_result, STREAM_KEEP),
        )
        self._worker = worker

    def decode(self, body: bytes) -> tuple[dict[str, Any], Headers]:
        return {"request": decode_request(self.name, body)}, NO_HEADERS

    async def call(self, arguments: dict[str, Any]) -> StreamedItems:
        run = current_run()
        assert run is not None
        run.stream = run.reports.stream_run(run)
        coordinator = Coordinator(self, self._worker(), run, run.stream, arguments["request"])
        return await run.stream.save(coordinator.parts(), _encode_part)

    def encode(self, value: object) -> bytes:
        if not isinstance(value, StreamedItems):
            raise ResultNotEncodable(f"{self.name}: middleware has replaced the result of a batch, which is its parts")
        return value.encode()


def _encode_part(part: object) -> bytes:
    assert isinstance(part, StoredPart)
    return write_part(part)
