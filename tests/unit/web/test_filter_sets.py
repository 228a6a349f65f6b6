"""Sixty filters: the box, the parameters, the command line and a search by brute force find the same tasks."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from onthedot import App, TaskInfo, group
from onthedot.cli import main
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.support.web_site import WebSite, web_site

SEED = 20261119
FILTERS = 60
SOURCES = ("send", "resize", "total", "none")
ERRORS = ("ValueError", "refused: p", "x")
CUSTOMERS = ("acme", "acme inc", 'the "best"', "17", "globex")


@dataclass(frozen=True)
class Term:
    """One part of a filter. name: of a parameter, else the path of an argument; json: it is compared as JSON."""

    name: str
    value: str
    matches: Callable[[TaskInfo], bool]
    path: str = ""
    json: bool = False

    @property
    def boxed(self) -> str:
        if self.name == "text":
            return quoted(self.value)
        return f"{self.path or self.name}:{'=' if self.json else ''}{self.value if self.json else quoted(self.value)}"

    @property
    def parameter(self) -> tuple[str, str]:
        if self.name == "text":
            return "q", quoted(self.value)
        return (self.name, self.value) if not self.path else (self.name, self.condition)

    @property
    def condition(self) -> str:
        return f"{self.path}{':=' if self.json else '='}{self.value}"

    @property
    def has_option(self) -> bool:
        return self.name not in ("text", "uuid", "flow")

    @property
    def option(self) -> list[str]:
        return [f"--{self.name}", self.condition if self.path else self.value]


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if " " in text or '"' in text else text


def new_app(store: AppStore) -> App[Any]:
    app: App[Any] = App(store.name, store=store.url, stop_timeout=0)

    @app.task(label="for {customer}")
    async def send(customer: str, order: dict[str, Any] | None = None, vip: bool = False) -> None:
        if vip:
            raise ConnectionError(f"{customer} refused: port {order}")

    @app.task
    async def resize(customer: str, order: dict[str, Any] | None = None, vip: bool = False) -> None:
        if order is not None and order["id"] == 17:
            raise ValueError("no order 17")

    @app.task
    async def later(customer: str, order: dict[str, Any] | None = None, vip: bool = False) -> None: ...

    @app.task
    async def total(found: list[None]) -> None: ...

    return app


async def fill(app: App[Any], seeded: random.Random) -> list[TaskInfo]:
    """Tasks of most states, the oldest first; two flows, one of which waits."""
    handles: list[Any] = []
    async with app.running():
        for number in range(60):
            name = seeded.choice(("send", "resize", "later"))
            order = {"id": seeded.choice((16, 17, "17")), "items": [{"sku": seeded.choice("ab")}]}
            options: dict[str, Any] = {"tags": seeded.sample(("eu", "us", "night shift"), seeded.randrange(3))}
            if name == "later":
                options["after"] = 3600
            if seeded.random() < 0.3:
                options["metadata"] = {"team": "billing"}
            call = app.named(name).options(**options)
            handles.append(await call.enqueue(seeded.choice(CUSTOMERS), order, vip=seeded.random() < 0.3))
            if number in (20, 40):
                await asyncio.sleep(0.005)  # their times differ from those before
        await (group(app.named("resize").s(name) for name in CUSTOMERS[:2]) | app.named("total")).enqueue()
        await (group([app.named("later").options(after=3600).s("acme")]) | app.named("total")).enqueue()
        await until(lambda: has_settled(app))
    await app.named("send").enqueue("acme")  # it is ready: no worker is alive
    for handle in handles[::7]:
        await handle.cancel()
    found: list[TaskInfo] = []
    cursor: str | None = None
    while True:
        page = await app.operations.find(cursor=cursor)
        found += page.tasks
        cursor = page.cursor
        if cursor is None:
            break
    return found[::-1]


async def has_settled(app: App[Any]) -> bool:
    return not any([len(await app.operations.find(state=state)) for state in ("ready", "running")])


def equals(info: TaskInfo, path: str, wanted: object) -> bool:
    """Written once more, by the documentation: a text also matches the number or true/false that is written so."""
    for value in (info.args, info.metadata):
        here: Any = value
        for part in path.split("."):
            if isinstance(here, Mapping):
                here = here.get(part)
            else:
                here = here[int(part)] if isinstance(here, list) and int(part) < len(here) else None
        if here is None:
            continue
        if isinstance(wanted, str) and not isinstance(here, str):
            if json.dumps(here) == wanted:
                return True
        elif type(here) is type(wanted) and here == wanted:
            return True
    return False


def has_error(info: TaskInfo, text: str) -> bool:
    return info.error is not None and (text in info.error.type or text in info.error.message)


def has_text(info: TaskInfo, text: str) -> bool:
    return text in info.label or has_error(info, text) or info.uuid.startswith(text) or info.uuid.endswith(text)


def all_terms(tasks: Sequence[TaskInfo]) -> list[list[Term]]:
    """Terms by name; a filter has at most one of each."""
    middle = tasks[len(tasks) // 2]
    ended = next(each for each in tasks if each.error is not None)
    flow = next(each.flow for each in tasks if each.flow)
    moment = middle.added_at.astimezone(UTC).isoformat()
    states = ("scheduled", "ready", "succeeded", "failed", "cancelled", "waiting", "running")
    return [
        [Term("source", name, lambda info, name=name: info.source == name) for name in SOURCES],
        [Term("state", name, lambda info, name=name: info.state.value == name) for name in states],
        [Term("tag", name, lambda info, name=name: name in info.tags) for name in ("eu", "night shift", "none")],
        [Term("error", text, lambda info, text=text: has_error(info, text)) for text in ERRORS],
        [
            Term("where", name, lambda info, name=name: equals(info, "customer", name), path="customer")
            for name in CUSTOMERS
        ],
        [
            Term("where", "17", lambda info: equals(info, "order.id", "17"), path="order.id"),
            Term("where", "17", lambda info: equals(info, "order.id", 17), path="order.id", json=True),
        ],
        [Term("where", "a", lambda info: equals(info, "order.items.0.sku", "a"), path="order.items.0.sku")],
        [Term("where", "billing", lambda info: equals(info, "team", "billing"), path="team")],
        [Term("where", "true", lambda info: equals(info, "vip", True), path="vip", json=True)],
        [Term("since", moment, lambda info: info.added_at >= middle.added_at), Term("since", "1h", lambda _: True)],
        [Term("until", moment, lambda info: info.added_at < middle.added_at), Term("until", "1h", lambda _: False)],
        [Term("flow", flow, lambda info: info.flow == flow)],
        [
            Term("uuid", part, lambda info, part=part: info.uuid.startswith(part))
            for part in (middle.uuid, middle.uuid[:11], ended.uuid[-8:])
        ],
        [
            Term("text", text, lambda info, text=text: has_text(info, text))
            for text in ("for acme", "refused", "nowhere", ended.uuid[-8:])
        ],
    ]  # fmt: skip


def filters(tasks: Sequence[TaskInfo], seeded: random.Random) -> list[list[Term]]:
    """Every term alone, then several together."""
    kinds = all_terms(tasks)
    found = [[term] for terms in kinds for term in terms]
    while len(found) < FILTERS:
        found.append([seeded.choice(terms) for terms in seeded.sample(kinds, seeded.choice((2, 2, 3)))])
    return found[:FILTERS]


async def listed(site: WebSite, parameters: Sequence[tuple[str, str]]) -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = await site.viewer.json(f"/tasks?{urlencode([*parameters, ('limit', '200'), ('cursor', cursor)])}")
        found += [row["uuid"] for row in page["items"]]
        cursor = page["cursor"]
        if not cursor:
            return found


def printed(store: AppStore, terms: Sequence[Term]) -> list[str]:
    """As options, where there is one for every term; else as one text."""
    given = [" ".join(term.boxed for term in terms)]
    if all(term.has_option for term in terms):
        given = [part for term in terms for part in term.option]
    command = ["task", "list", *given, "--limit", "1000", "--json", "--store", store.url, "-n", store.name]
    result = CliRunner().invoke(main, command, prog_name="onthedot")
    assert result.exit_code == 0, (command, result.output)
    return [task["uuid"] for task in json.loads(result.stdout)["tasks"]]


@pytest.mark.once
async def test_sixty_filters_find_the_same_tasks(app_store: AppStore) -> None:
    seeded = random.Random(SEED)
    app = new_app(app_store)
    sizes: list[int] = []
    async with app, web_site(app) as site:
        tasks = await fill(app, seeded)
        for terms in filters(tasks, seeded):
            text = " ".join(term.boxed for term in terms)
            expected = {info.uuid for info in tasks if all(term.matches(info) for term in terms)}
            boxed = await listed(site, [("q", text)])
            assert (set(boxed), len(boxed)) == (expected, len(expected)), f"box: {text}"
            assert set(await listed(site, [term.parameter for term in terms])) == expected, f"parameters: {text}"
            if not app_store.url.startswith("memory:"):  # no other process sees it
                assert set(await asyncio.to_thread(printed, app_store, terms)) == expected, f"command: {text}"
            sizes.append(len(expected))
    assert sum(map(bool, sizes)) > FILTERS / 2, "most filters find nothing"
