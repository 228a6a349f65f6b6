"""The OPTIONS of an entry of TASKS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onthedot.model.options import TaskOptions


@dataclass(frozen=True)
class DjangoOptions:
    """The ``OPTIONS`` of an entry of ``TASKS``.

    STORE: URL of the store; by default ``$ONTHEDOT_STORE``, else a file in the current folder
    NAME: name of the app
    JOIN: alias of a database; a task that is enqueued inside its open transaction is stored with its commit
    DEFAULTS: options of every task, such as ``{"max_retries": 3}``
    PAGE: where the operators' page is, for a link in the admin
    """

    STORE: str | None = None
    NAME: str = "onthedot"
    JOIN: str | None = None
    DEFAULTS: TaskOptions = field(default_factory=TaskOptions)
    PAGE: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DjangoOptions:
        """Without the ones that are unknown, which a system check reports."""
        return cls(**{name: value for name, value in options.items() if name in OPTION_NAMES})


OPTION_NAMES = tuple(DjangoOptions.__dataclass_fields__)
