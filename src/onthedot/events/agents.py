"""Agents: user code that handles events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from onthedot.clock.durations import Duration
from onthedot.errors import DeclarationError, suggestion
from onthedot.events.classification import Classification, classify
from onthedot.events.event import Event
from onthedot.model.options import TaskOptions

if TYPE_CHECKING:
    from onthedot.model.limits import AtMost, Rate

Accepts: TypeAlias = Callable[[Event[Any]], bool]
ClassifyError: TypeAlias = Callable[[BaseException, Event[Any]], Classification]


class BaseAgent:
    """Handles events of some types. Each event that it accepts is a task of the source ``agent.<id>``.

    The options of ``@app.task`` may be class attributes, such as ``concurrency = 4``; see `TaskOptions`. Those of
    uniqueness may not, since an event is handled once by its id; nor `max_pending`, since `max_in_flight` bounds what
    is received. Limits and labels go by fields of the event: key, type, aggregate_id, aggregate_type, correlation_id
    and topic.

    >>> class Mailer(BaseAgent):
    ...     id = "mailer"
    ...     consumes = ("Shop.Order.Placed",)
    ...     async def process(self, event: Event[dict[str, int]]) -> Event:
    ...         return event.reply("Shop.Order.Confirmed", {"id": event.payload["id"]})
    >>> Mailer().max_retries
    3
    """

    id: str = ""
    """Name of the agent: 1 to 100 of ``a-z 0-9 _``. Its consumer group is ``<app>.<id>``."""
    aliases: Sequence[str] = ()
    """Other names by which ``app.agents.find`` knows it, such as former ids, whose tasks it runs, too."""
    consumes: Sequence[str] | str = ()
    """Types of events; ``*`` in the last segment stands for any characters. ``"*"``: all that is in `topics`."""
    topics: Sequence[str] = ()
    """Topics that it reads; by default those of `consumes`, which ``Events(topics=…)`` decides."""
    fails_as: str | None = None
    """Type of the event that is published with a dead letter; None: there is none."""
    ordered: bool = True
    """Whether an event starts after the one before it with the same key has ended, through all its retries."""
    max_in_flight: int = 1000
    """How many events may be received and not ended, per process; the others stay on the bus."""
    give_up: Duration = 900
    """Seconds from its arrival until an event that is throttled becomes a dead letter."""
    max_retries: int = 3
    """How often a failed run is repeated before the event becomes a dead letter."""
    backoff: float | Sequence[float] | Callable[[int, BaseException], float] = (0.5, 1, 2)
    """Seconds before each retry."""
    timeout: Duration | None = 60
    """How long a run may take; then it is retried."""
    keep: Duration | None = timedelta(days=8)
    """How long ended tasks are kept. Meanwhile a copy of their event is not handled again."""

    if TYPE_CHECKING:
        concurrency: int | None
        limits: Sequence[Rate | AtMost]

    def accepts(self, event: Event[Any]) -> bool:  # noqa: ARG002 - every event
        """Whether it handles an event of its types. Others are skipped, without a task and without a dead letter.

        It must be a plain function of the event: quick, and without effects.

        Args:
            event: The event, with its payload decoded as for `process`.
        """
        return True

    def process(self, event: Event[Any]) -> Any:
        """Handles an event: an ``async def``, or a plain function, which runs in a thread.

        It returns the events that it publishes: one, a list, or None. They are stored in the step that ends the task.
        The annotation of the event, as in ``Event[Request]``, decides how the payload is decoded.

        Args:
            event: The event.
        """
        raise NotImplementedError

    def classify_error(self, error: BaseException, event: Event[Any]) -> Classification:  # noqa: ARG002 - a default
        """Decides what an error of `process` means; `Retry`, `Snooze`, `Reject` and `Cancel` are applied as raised.

        A returned `Snooze` uses no retry, and the agent starts nothing in this process until it is over.

        Args:
            error: What `process` has raised.
            event: The event that it has handled.
        """
        return classify(error)


class AgentAttributes(TaskOptions, total=False):
    """The attributes of an agent that is a function; see `BaseAgent`."""

    aliases: Sequence[str]
    topics: Sequence[str]
    fails_as: str | None
    ordered: bool
    max_in_flight: int
    give_up: Duration
    accepts: Accepts
    classify_error: ClassifyError


class FunctionAgent(BaseAgent):
    """A function as an agent. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any], agent_id: str, attributes: dict[str, Any]) -> None:
        known = {*AgentAttributes.__annotations__, *TaskOptions.__annotations__, "consumes"}
        for unknown in sorted(attributes.keys() - known):
            raise DeclarationError(f"agent {agent_id!r}: no attribute {unknown!r}{suggestion(unknown, known)}")
        self.function: Callable[..., Any] = function
        self.id = agent_id
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        for name, value in {**attributes, "process": function}.items():
            setattr(self, name, value)

    def __call__(self, event: Event[Any]) -> Any:
        return self.function(event)


def agent(
    id: str,  # noqa: A002 - as the attribute is called
    *,
    consumes: Sequence[str] | str,
    **attributes: Unpack[AgentAttributes],
) -> Callable[[Callable[[Event[Any]], Any]], FunctionAgent]:
    """Makes an agent of a function, for a registry: ``registry.register(expert)``.

    Args:
        id: Name of the agent.
        consumes: Types of events that it handles.
        attributes: Other attributes of a `BaseAgent`, such as ``aliases``, ``accepts`` and ``max_retries``.

    >>> @agent("mailer", consumes=("Shop.Order.Placed",), max_retries=5)
    ... async def mail(event: Event) -> None: ...
    >>> mail.id, mail.max_retries
    ('mailer', 5)
    """

    def decorate(function: Callable[[Event[Any]], Any]) -> FunctionAgent:
        return FunctionAgent(function, id, {"consumes": consumes, **attributes})

    return decorate
