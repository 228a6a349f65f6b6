"""The HTTP API of an app object: in a process of its own, or mounted in another program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from onthedot.api.app import App
from onthedot.clock.protocol import Clock
from onthedot.model.options import AddOptions
from onthedot.model.redaction import Redaction
from onthedot.web.application import web_app
from onthedot.web.auth import Authenticator
from onthedot.web.bodies import NewTaskBody
from onthedot.web.context import AppAccess, AppFacts, OtherApps
from onthedot.web.errors import ApiError
from onthedot.web.schemas import AddedTask
from onthedot.web.settings import WebSettings

if TYPE_CHECKING:
    from onthedot.stores.contract import NewTask


def app_site(
    app: App[Any],
    settings: WebSettings,
    facts: AppFacts,
    *,
    authenticator: Authenticator | None = None,
    redaction: Redaction | None = None,
    clock: Clock | None = None,
    others: OtherApps | None = None,
) -> ASGIApp:
    """Return the HTTP API of an app, which the caller connects on the event loop that serves it.

    others: more apps of the store, which `?app=` names; None: this one only
    """
    access = app_access(app)
    return web_app(
        access.operations,
        settings,
        app=facts._replace(is_outbox_apart=access.is_outbox_apart),
        authenticator=authenticator,
        clock=clock,
        redaction=redaction,
        add_task=access.add_task,
        dead_letters=access.dead_letters,
        make_task=access.make_task,
        others=others,
    )


def app_access(app: App[Any]) -> AppAccess:
    """Return the parts of an app that the handlers use."""

    def operations() -> Any:
        client = app.runtime.portal.connected()
        return None if client is None else client.operations

    async def add_task(task: NewTaskBody, uuid: str | None) -> AddedTask:
        _check_arguments(task)
        handle = await app.named(task.source).options(**_options(task, uuid)).enqueue(**task.args)
        return AddedTask(handle.uuid, handle.added)

    async def make_task(task: NewTaskBody) -> NewTask:
        """Without the trace of the request: it is stored with a schedule, and each window begins a trace."""
        _check_arguments(task)
        client = app.runtime.portal.connected()
        assert client is not None  # operations were asked before
        call = app.named(task.source).options(**_options(task, None)).s(**task.args)
        (routed,) = await client.route((call.single_task(),), remote=call.definition.is_remote)
        return routed

    outbox = app.runtime.config.events.outbox
    is_outbox_apart = outbox is not None and outbox != app.runtime.url
    return AppAccess(operations, add_task, make_task, app.runtime.dead_letters, is_outbox_apart)


def _check_arguments(task: NewTaskBody) -> None:
    if "self" in task.args:  # the only name that a call in Python cannot have
        raise ApiError("invalid", "no task has an argument 'self'", field="args")


def _options(task: NewTaskBody, uuid: str | None) -> AddOptions:
    options: AddOptions = {}
    if uuid is not None:
        options["uuid"] = uuid
    if task.at is not None:
        options["at"] = task.at
    if task.after is not None:
        options["after"] = task.after
    if task.priority is not None:
        options["priority"] = task.priority
    if task.unique is not None:
        options["unique"] = task.unique
    if task.expires is not None:
        options["expires"] = task.expires
    if task.tags:
        options["tags"] = tuple(task.tags)
    if task.label:
        options["label"] = task.label
    if task.metadata:
        options["metadata"] = dict(task.metadata)
    return options
