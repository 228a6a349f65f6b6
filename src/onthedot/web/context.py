"""Values that all handlers of one web app share: operations, settings, credentials, shared reads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from onthedot.clock.protocol import Clock
from onthedot.events.dead_letter_queue import DeadLetterQueue
from onthedot.model.redaction import Redaction, default_redaction
from onthedot.operations import Operations
from onthedot.operations.live_view import LiveSnapshot, LiveView
from onthedot.web.auth import Authenticator
from onthedot.web.bodies import NewTaskBody
from onthedot.web.errors import ApiError
from onthedot.web.open_streams import OpenStreams
from onthedot.web.schemas import AddedTask
from onthedot.web.security import CHANGE_BURST, CHANGES_PER_SECOND, SIGN_INS_PER_MINUTE, RateLimit
from onthedot.web.settings import WebSettings
from onthedot.web.shared_reads import LongReads, SharedReads

if TYPE_CHECKING:  # handlers pass it on to operations
    from onthedot.stores.contract import NewTask

_LIVE_AGE = 0.5  # seconds
_FEATURES = ("tasks", "sources", "schedules", "workers", "failures", "flows", "batches", "waiting")
_SCAN_REST = 20  # a list reads all dead letters: at most 5 % of the time


class AppFacts(NamedTuple):
    """The app that is shown. store: its kind, such as "redis".

    is_outbox_apart: its events are in another database, which this server does not read
    """

    name: str
    store: str = ""
    version: str = ""
    is_outbox_apart: bool = False


class AddTask(Protocol):
    """Adds a task; uuid: its id, or None."""

    async def __call__(self, task: NewTaskBody, uuid: str | None, /) -> AddedTask: ...


OpenDeadLetters: TypeAlias = Callable[[], AbstractAsyncContextManager[DeadLetterQueue]]
"""Opens the dead letters on the bus of the app."""


class MakeTask(Protocol):
    """Makes the task of a schedule, checked as far as its code is here."""

    async def __call__(self, task: NewTaskBody, /) -> NewTask: ...


class AppAccess(NamedTuple):
    """An app as the handlers use it. is_outbox_apart: as in `AppFacts`."""

    operations: Callable[[], Operations | None]
    add_task: AddTask
    make_task: MakeTask
    dead_letters: OpenDeadLetters
    is_outbox_apart: bool


class OtherApps(Protocol):
    """The other apps of the store, for a server that shows all of them."""

    async def names(self) -> Sequence[str]:
        """Those that have anything in the store, with the one that is shown first."""
        ...

    async def context(self, name: str, first: WebContext) -> WebContext:
        """Open an app, unless it is open. ApiError: the store has none of this name. first: of the server."""
        ...


class WebContext:
    """operations: None while the app that is shown is not open. others: None: this server shows one app only."""

    def __init__(
        self,
        operations: Callable[[], Operations | None],
        settings: WebSettings,
        authenticator: Authenticator,
        clock: Clock,
        app: AppFacts,
        redaction: Redaction | None = None,
        add_task: AddTask | None = None,
        dead_letters: OpenDeadLetters | None = None,
        make_task: MakeTask | None = None,
        others: OtherApps | None = None,
        streams: OpenStreams | None = None,
    ) -> None:
        self._operations = operations
        self.settings = settings
        self.authenticator = authenticator
        self.clock = clock
        self.app = app
        self.redaction: Redaction = redaction or default_redaction()
        self.add_task = add_task
        self.dead_letters = dead_letters
        self.make_task = make_task
        self._others = others
        self.key: bytes = getattr(authenticator, "key", b"") or secrets.token_bytes(32)  # of preview tokens
        self.streams: OpenStreams = OpenStreams() if streams is None else streams  # of all apps together
        self.shared: SharedReads = SharedReads()
        self.letter_scans: LongReads = LongReads("dead letters", _SCAN_REST)
        self._live: tuple[Operations, LiveView] | None = None
        self.changes: RateLimit = RateLimit(CHANGES_PER_SECOND, CHANGE_BURST, self.seconds)
        self.sign_ins: RateLimit = RateLimit(SIGN_INS_PER_MINUTE / 60, SIGN_INS_PER_MINUTE, self.seconds)

    def seconds(self) -> float:
        return self.clock.now() / 1000

    def sibling(self, access: AppAccess, facts: AppFacts) -> WebContext:
        """The context of another app of this server, with its users, settings and streams."""
        return WebContext(
            access.operations,
            self.settings,
            self.authenticator,
            self.clock,
            facts,
            self.redaction,
            access.add_task,
            access.dead_letters,
            access.make_task,
            self._others,
            self.streams,
        )

    async def of_app(self, name: str) -> WebContext:
        """The context of the app that a request names; "": of this one."""
        if name in ("", self.app.name):
            return self
        if self._others is None:
            raise ApiError("not_found", f"this server shows the app {self.app.name!r} only", field="app")
        return await self._others.context(name, self)

    async def app_names(self) -> list[str]:
        """The apps that this server shows."""
        others = () if self._others is None else await self._others.names()
        return sorted({self.app.name, *others})

    @property
    def is_open(self) -> bool:
        """Whether the app that is shown is connected to its store in this event loop."""
        return self._operations() is not None

    @property
    def operations(self) -> Operations:
        found = self._operations()
        if found is None:
            raise ApiError(
                "not_open",
                f"the app {self.app.name!r} is not connected to its store in this process: give the program "
                "lifespan=lifespan(app) of onthedot.integrations.fastapi",
            )
        return found

    @property
    def features(self) -> list[str]:
        """The parts of the store for which there are pages."""
        if self.operations.outbox.is_available and not self.app.is_outbox_apart:
            return [*_FEATURES, "outbox"]
        return list(_FEATURES)

    async def live(self) -> LiveSnapshot:
        """Rates, sources and workers, as they were at most half a second ago.

        A change of this process is seen at once, if it forgets what is shared.
        """
        found = await self.shared.get("live", _LIVE_AGE, self._look)
        if found.trouble:
            raise ApiError("store_unavailable", found.trouble)
        return found

    async def history(self, source: str) -> Sequence[int]:
        """Tasks of a source that ended in each of the last 60 seconds."""
        await self.live()
        return () if self._live is None else self._live[1].history(source)

    async def _look(self) -> LiveSnapshot:
        operations = self.operations
        if self._live is None or self._live[0] is not operations:
            self._live = (operations, operations.watch(always_counts=True))
        return await self._live[1].look()
