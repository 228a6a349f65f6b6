"""The parts of a batch as new tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onthedot.batches.progress import PlannedPart
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.new_task import AGING
from onthedot.model.batch_names import PART_ID, part_id
from onthedot.model.flow_names import MemberUuids
from onthedot.model.options import AddOptions
from onthedot.model.stored_batches import BatchRequest
from onthedot.stores.contract import Links, NewTask, Policy


class PartMaker:
    """Makes the parts of one batch.

    definition: the task of the batch
    find: the definition of another task of the app, for the fallback; None: its code is not known here
    """

    def __init__(
        self,
        batch: str,
        request: BatchRequest,
        definition: FunctionDefinition,
        find: Callable[[str], FunctionDefinition | None],
    ) -> None:
        self._batch = batch
        self._request = request
        self._definition = definition
        self._fallback = find(request.fallback) if request.fallback else None
        self._uuids = MemberUuids(batch)
        self._links = Links(batch, (batch,))

    @property
    def is_foreign(self) -> bool:
        """Whether the parts run a fallback whose code is not known here, as during a deploy."""
        return bool(self._request.fallback) and self._fallback is None

    def new_parts(self, planned: Sequence[PlannedPart]) -> list[NewTask]:
        if not planned:
            return []
        if self.is_foreign:
            return self._foreign_parts(planned)
        definition = self._fallback or self._definition
        arguments, headers = definition.decode(bytes(self._request.call))
        return [self._new_part(definition, arguments, headers.metadata or {}, part) for part in planned]

    def _foreign_parts(self, planned: Sequence[PlannedPart]) -> list[NewTask]:
        request = self._request
        priority = self._definition.options.priority if request.priority is None else request.priority
        policy = Policy(priority=priority, boost=priority * AGING)
        return [
            NewTask(self._uuids.of(part.index), request.fallback, bytes(request.call), policy=policy, links=self._links)
            for part in planned
        ]

    def _new_part(
        self, definition: FunctionDefinition, arguments: dict[str, Any], metadata: Mapping[str, Any], part: PlannedPart
    ) -> NewTask:
        request = self._request
        own: dict[str, object] = {"count": part.size}
        if request.is_list:
            start = sum(request.sizes[: part.index])
            own = {"items": arguments["items"][start : start + part.size]}
        options: AddOptions = {
            "uuid": self._uuids.of(part.index),
            "metadata": {**metadata, **part_metadata(self._batch, request.type, part.index)},
        }
        if request.priority is not None:
            options["priority"] = request.priority
        return replace(definition.new_task((), {**arguments, **own}, options), links=self._links)


def part_metadata(batch: str, kind: str, index: int) -> dict[str, str]:
    """Shown to a part as ``current_task().metadata``."""
    return {"batch": batch, PART_ID: part_id(batch, kind, index)}
