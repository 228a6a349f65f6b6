"""A call of ``app.batch``: checked and encoded before anything is stored, then added as a coordinator."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from onthedot.batches.coordinator_source import PRIORITY, CoordinatorSource
from onthedot.batches.dedup import existing_names
from onthedot.batches.new_parts import part_metadata
from onthedot.batches.policy import check_parts, slices
from onthedot.client.client import StoreClient
from onthedot.clock.durations import Duration, to_duration_ms
from onthedot.codec.annotations import write
from onthedot.codec.body import StoredBody
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.new_task import AGING
from onthedot.errors import ArgumentError, DeclarationError
from onthedot.flows.enqueue import check_workers
from onthedot.model.flow_names import MEMBER_KEEP, MemberUuids, end_counter
from onthedot.model.options import AddOptions, Priority, parse_bound, parse_priority
from onthedot.model.stored_batches import BatchRequest, read_request
from onthedot.model.stored_keys import stored_key
from onthedot.model.value_errors import InvalidOption, SettingError
from onthedot.operations.modes import Mode
from onthedot.stores.contract import Added, Links, NewTask, Policy

if TYPE_CHECKING:
    from onthedot.api.functions import Enqueuer


_LIST_SIZE = 100  # values that a part gets, where neither the call nor the policy decides


class BatchArguments(TypedDict, total=False):
    """The arguments of ``app.batch(task, …)``: data only. Give `count` or `items`."""

    count: int
    """How many items are wanted. The parameter `count` of the task gets the size of a part."""
    items: Iterable[Any]
    """A list of values. The parameter `items` of the task gets a slice of it."""
    size: int
    """How many values of `items` a part gets; by default the policy's `split` decides, else 100."""
    type: str
    """The type of the items, for sizes and thresholds. The parameter `type` of the task gets it."""
    args: Mapping[str, Any]
    """Further arguments of the task, by name."""
    priority: Priority
    """Of the parts, 1 to 10; by default the task's."""
    deadline: Duration | None
    """Seconds from now, or a timedelta: then parts that have not ended are cancelled, and the batch ends with the items
    so far."""
    existing: Iterable[Any]
    """Items, or names of items, that no item of the batch may be the same as."""
    fallback: Enqueuer[..., Any] | None
    """A task with the same parameters that makes all items while the task is degraded; by default the policy's."""
    metadata: Mapping[str, Any]
    """Reaches every part: ``current_task().metadata`` has it beside ``batch`` and ``subtask_id``."""
    key: str
    """Makes a repeat harmless: the same key returns the same batch, as long as it is kept."""


class PreparedBatch(NamedTuple):
    """A checked call. fallback: of this call or of the policy."""

    source: CoordinatorSource
    request: BatchRequest
    arguments: dict[str, Any]
    fallback: FunctionDefinition | None
    key: str | None
    metadata: Mapping[str, Any]

    @property
    def task(self) -> str:
        return self.source.definition.name

    def new_task(self, mode: Mode) -> NewTask:
        """The coordinator. mode: of the task, now."""
        owner = self.source.definition.owner
        uuid = owner.new_uuid()
        request = self.request
        if mode == "degraded":
            request = self._degraded(uuid)
        options = self.source.options
        unique_for = None if self.key is None else max(options.keep, MEMBER_KEEP)  # as long as its record
        policy = Policy(
            priority=PRIORITY,
            boost=PRIORITY * AGING,
            unique_for=unique_for,
            max_crashes=options.max_crashes,
            reply_to=owner.client,
        )
        body = write(StoredBody(request))
        links = Links(uuid, (end_counter(uuid),))  # it is the last task of its parts
        return NewTask(uuid, self.source.name, body, unique=self.key, policy=policy, links=links)

    def _degraded(self, uuid: str) -> BatchRequest:
        """One part with all items, made by the fallback; without one, by the task itself."""
        request = replace(self.request, sizes=(self.request.count,), degraded=True)
        if self.fallback is None:
            return request
        options: AddOptions = {
            "uuid": MemberUuids(uuid).of(0),
            "metadata": {**self.metadata, **part_metadata(uuid, request.type, 0)},
        }
        call = self.fallback.new_task((), self.arguments, options)
        return replace(request, fallback=self.fallback.name, call=Raw(call.body))


def prepare_batch(
    source: CoordinatorSource, arguments: BatchArguments, fallback: FunctionDefinition | None
) -> PreparedBatch:
    """Checks a call. fallback: checked to be a task of this app."""
    unknown = sorted(arguments.keys() - BatchArguments.__annotations__.keys())
    name = source.definition.name
    if unknown:
        raise ArgumentError(f"app.batch({name}): no argument {unknown[0]!r}; arguments of the task go into args={{…}}")
    kind = arguments.get("type", "")
    if not isinstance(kind, str):
        raise ArgumentError(f"app.batch({name}): type must be a string, not {kind!r}")
    count, items = _amount(name, arguments)
    given: dict[str, Any] = dict(arguments.get("args") or {})
    for parameter in ("count", "items", "type"):
        if parameter in given:
            raise ArgumentError(f"app.batch({name}): {parameter!r} in args; write app.batch({name}, {parameter}=…)")
    given |= {"count": count} if items is None else {"items": items}
    if "type" in arguments:
        given["type"] = kind
    for parameter in ("count" if items is None else "items", *(["type"] if "type" in arguments else [])):
        if parameter not in source.definition.codec.parameters:
            raise ArgumentError(f"app.batch({name}): it has no parameter {parameter!r}, which a part needs")
    metadata = _metadata(name, arguments.get("metadata") or {})
    call = source.definition.new_task((), given, {"metadata": metadata} if metadata else {}).body
    if fallback is not None:
        _check_fallback(name, fallback, given)
    deadline = arguments.get("deadline")
    priority = arguments.get("priority")
    request = BatchRequest(
        count=count,
        sizes=_sizes(source, kind, count, arguments.get("size"), is_list=items is not None),
        call=Raw(call),
        digest="",
        type=kind,
        is_list=items is not None,
        existing=_existing(source, arguments.get("existing") or ()),
        deadline=None if deadline is None else to_duration_ms(deadline, f"app.batch({name}): deadline", SettingError),
        priority=None if priority is None else _priority(name, priority),
        fallback="" if fallback is None else fallback.name,
    )
    # The policy's sizes may change between two deploys; the caller's size is part of the request.
    content = msgspec.json.encode((replace(request, sizes=()), arguments.get("size")))
    digest = sha256(content).hexdigest()
    request = replace(request, digest=digest, fallback="")
    key = arguments.get("key")
    if key is not None:
        key = stored_key(key, "key", f"app.batch({name})")
    return PreparedBatch(source, request, given, fallback, key, metadata)


async def add_batch(client: StoreClient, batch: PreparedBatch) -> Added:
    """Stores the coordinator. Raises SourceFrozen, and ArgumentError if its key is that of another request."""
    mode = await client.operations.batches.recent_mode(batch.task)
    await check_workers(client.store)
    new = batch.new_task(mode)
    added = await client.add(new)
    if added.uuid != new.uuid:
        (record,) = await client.store.get([added.uuid])
        if record is not None and read_request(record).digest != batch.request.digest:
            raise ArgumentError(
                f"app.batch({batch.task}): key {batch.key!r} is that of batch {added.uuid}, which has other arguments"
            )
    return added


def _amount(name: str, arguments: BatchArguments) -> tuple[int, Sequence[Any] | None]:
    """How many items, and the list, if there is one."""
    if ("count" in arguments) == ("items" in arguments):
        raise InvalidOption(f"app.batch({name}): give count=… or items=…, one of them")
    if "count" in arguments:
        if "size" in arguments:
            raise InvalidOption(f"app.batch({name}): size=… goes with items=…; the policy's split divides a count")
        return _bound(name, arguments["count"], "count"), None
    given = arguments.get("items", ())
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InvalidOption(f"app.batch({name}): items must be a list of values, not {given!r:.100}")
    items = list(given)
    if not items:
        raise InvalidOption(f"app.batch({name}): items is empty")
    return len(items), items


def _sizes(source: CoordinatorSource, kind: str, count: int, size: int | None, *, is_list: bool) -> tuple[int, ...]:
    name = source.definition.name
    if size is not None:
        return check_parts(name, slices(count, _bound(name, size, "size")))
    if is_list and source.policy.split is None:
        return check_parts(name, slices(count, _LIST_SIZE))
    return source.policy.sizes(name, kind, count)


def _bound(name: str, value: object, what: str) -> int:
    try:
        return parse_bound(value, what)
    except SettingError as error:
        raise InvalidOption(f"app.batch({name}): {error}") from None


def _metadata(name: str, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    for own in part_metadata("", "", 0):
        if own in metadata:
            raise InvalidOption(f"app.batch({name}): metadata has {own!r}, which every part gets from its batch")
    return metadata


def _priority(name: str, value: Priority) -> int:
    try:
        return parse_priority(value)
    except ValueError as error:
        raise InvalidOption(f"app.batch({name}): {error}") from None


def _existing(source: CoordinatorSource, existing: Iterable[Any]) -> tuple[str, ...]:
    if isinstance(existing, str | bytes):
        raise InvalidOption(f"app.batch({source.definition.name}): existing must be a list of names or items")
    if source.policy.dedup is None:
        if list(existing):
            raise InvalidOption(
                f"app.batch({source.definition.name}): existing=… needs names: BatchPolicy(dedup=Dedup(…))"
            )
        return ()
    return tuple(sorted(set(existing_names(existing, source.policy.dedup))))  # the same digest in every process


def check_named_parameters(definition: FunctionDefinition) -> None:
    """DeclarationError for ``*args`` or ``**kwargs``: parts are called with named arguments, of which some change."""
    for parameter in inspect.signature(definition.function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise DeclarationError(
                f"task {definition.name!r}: a part of a batch takes named parameters only; {parameter} is not one"
            )


def _check_fallback(name: str, fallback: FunctionDefinition, given: Mapping[str, Any]) -> None:
    check_named_parameters(fallback)
    for parameter in given:
        if parameter not in fallback.codec.parameters:
            raise ArgumentError(
                f"app.batch({name}): its fallback {fallback.name} has no parameter {parameter!r}; it takes those of "
                f"{name}"
            )
    missing = [each for each in fallback.codec.required if each not in given]
    if missing:
        raise ArgumentError(f"app.batch({name}): its fallback {fallback.name} needs {missing[0]!r}, which is not given")
