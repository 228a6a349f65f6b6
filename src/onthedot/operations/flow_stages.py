"""The shape of a flow: its tasks in stages, and which stages a stage waits for.

A stage has the tasks of one source that the same tasks wait for, such as the members of a group. So a flow of thousands
of tasks has a few stages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onthedot.model.failures import decode_failure
from onthedot.model.task_info import public_state
from onthedot.operations.humanize import short_id
from onthedot.stores.contract import Links, Record

_NOTABLE = ("failed", "running", "ready", "parked", "scheduled", "waiting", "cancelled", "succeeded")
"""Which task of several stands for its stage."""


@dataclass(frozen=True, slots=True)
class FlowStage:
    """Tasks of a flow that have one source and one place in it."""

    number: int
    """From 0, in the order in which the stages may run; the last task of the flow is the last stage."""
    source: str
    """The name of their function."""
    count: int
    """How many tasks it has."""
    states: Mapping[str, int]
    """How many of them are in each state."""
    uuid: str
    """Of its only task; of several, one that failed or has not ended, if there is one."""
    remark: str
    """Of that task: its error, why it was cancelled, its worker or its due time."""
    after: tuple[int, ...]
    """The stages that it waits for."""


@dataclass
class SimilarTasks:
    """Tasks of one source and place: how many are in each state, and one of them."""

    source: str
    links: Links | None
    seq: int
    example: Record
    states: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def of(cls, record: Record) -> SimilarTasks:
        return cls(record.source, record.links, record.seq, record)

    def add(self, record: Record) -> None:
        self.states[public_state(record.state).value] += 1
        self.seq = min(self.seq, record.seq)
        self.keep(record)

    def keep(self, record: Record) -> None:
        if _NOTABLE.index(record.state) < _NOTABLE.index(self.example.state):
            self.example = record


class FlowShape:
    """Gathers the tasks of a flow, and groups them into stages. Keeps no more than one record per place."""

    def __init__(self, last: Record) -> None:
        self._last = last
        self._tasks: dict[tuple[str, Links | None], SimilarTasks] = {}

    def add(self, record: Record) -> None:
        """record: a member, or the last task."""
        links = record.links
        if record.uuid == self._last.uuid:
            links = None  # it is a stage of its own
        key = (record.source, links)
        if key not in self._tasks:
            self._tasks[key] = SimilarTasks.of(record)
        self._tasks[key].add(record)

    def stages(self, moment: Callable[[float], str]) -> tuple[FlowStage, ...]:
        """moment: the text of a time."""
        merged: dict[tuple[str, frozenset[int]], int] = {}  # stages by source and followers, from the last to the first
        stages: list[SimilarTasks] = []
        before: defaultdict[int, set[int]] = defaultdict(set)
        waiting: defaultdict[str, set[int]] = defaultdict(set)  # stages by the counters that they wait for
        for tasks in sorted(self._tasks.values(), key=self._order, reverse=True):  # followers first
            increments = () if tasks.links is None else tasks.links.increments
            followers = frozenset(stage for name in increments for stage in waiting.get(name, ()))
            number = merged.setdefault((tasks.source, followers), len(stages))
            if number == len(stages):
                stages.append(tasks)
            else:
                stages[number].states.update(tasks.states)
                stages[number].keep(tasks.example)
            for follower in followers:
                before[follower].add(number)
            if tasks.links is not None and tasks.links.waits is not None:
                waiting[tasks.links.waits.counters[0][0]].add(number)
        return _numbered(stages, before, moment)

    def _order(self, tasks: SimilarTasks) -> tuple[bool, int]:
        """A task is stored after those that it waits for, and the last one after all."""
        return tasks.example.uuid == self._last.uuid, tasks.seq


def _numbered(
    stages: Sequence[SimilarTasks], before: Mapping[int, Iterable[int]], moment: Callable[[float], str]
) -> tuple[FlowStage, ...]:
    """The stages come last to first."""
    last = len(stages) - 1
    found = [
        FlowStage(
            last - number,
            tasks.source,
            tasks.states.total(),
            dict(tasks.states),
            tasks.example.uuid,
            remark(tasks.example, moment),
            tuple(sorted(last - each for each in before.get(number, ()))),
        )
        for number, tasks in enumerate(stages)
    ]
    return tuple(reversed(found))


def flow_layers(stages: Sequence[FlowStage]) -> tuple[tuple[FlowStage, ...], ...]:
    """The stages by the number of stages before them on the longest path."""
    depths: list[int] = []
    for stage in stages:  # a stage comes after those that it waits for
        depths.append(1 + max((depths[before] for before in stage.after), default=-1))
    layers: defaultdict[int, list[FlowStage]] = defaultdict(list)
    for stage, depth in zip(stages, depths, strict=True):
        layers[depth].append(stage)
    return tuple(tuple(layers[depth]) for depth in sorted(layers))


def remark(record: Record, moment: Callable[[float], str]) -> str:
    """The text after the state of a task: its worker, its due time or its error."""
    if record.state == "running":
        return f"on {short_id(record.history.session or '')} since {moment(record.history.started or 0)}"
    if record.state == "scheduled":
        return f"due {moment(record.due)}"
    if record.state in ("failed", "cancelled"):
        return failure_text(record)
    return ""


def failure_text(record: Record) -> str:
    """The type and the message of an error, or why a task was cancelled."""
    failure = decode_failure(record.history.error)
    if failure is None:
        return ""
    return f"{failure.type}: {failure.message}" if failure.type else failure.message
