"""Names of a batch: the source of its coordinator, and what a part carries."""

from __future__ import annotations

_COORDINATOR = ":batch"
PART_ID = "subtask_id"  # in the metadata of a part


def coordinator_source(task: str) -> str:
    """The source of the tasks that coordinate batches of `task`.

    >>> coordinator_source("names")
    'names:batch'
    """
    return f"{task}{_COORDINATOR}"


def batch_task(source: str) -> str | None:
    """The task whose batches a source coordinates; None: it is no coordinator.

    >>> batch_task("names:batch"), batch_task("names")
    ('names', None)
    """
    task = source.removesuffix(_COORDINATOR)
    if task == source:
        return None
    return task or None


def part_id(batch: str, kind: str, index: int) -> str:
    """
    >>> part_id("0193", "item", 2)
    '0193:item:2'
    """
    return f"{batch}:{kind}:{index}"
