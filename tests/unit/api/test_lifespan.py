"""A wrong ``lifespan`` or ``include`` is refused where it is given, with what to write instead."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from onthedot import App, DeclarationError


async def undecorated() -> AsyncIterator[int]:
    yield 17


async def coroutine() -> int:
    return 17


@asynccontextmanager
async def of_fastapi(app: object) -> AsyncIterator[object]:
    yield app


@asynccontextmanager
async def optional(number: int = 17, *more: int, **others: int) -> AsyncIterator[int]:
    yield number + sum(more) + sum(others.values())


@contextmanager
def in_sync_code() -> Iterator[int]:
    yield 17


@pytest.mark.parametrize(
    ("lifespan", "message"),
    [
        (17, "lifespan=17: it is an async generator function without parameters, under @contextlib.async"),
        (undecorated, "lifespan=undecorated: @contextlib.asynccontextmanager is missing above it"),
        (coroutine, "lifespan=coroutine: @contextlib.asynccontextmanager is missing above it"),
        (of_fastapi, "lifespan=of_fastapi has the parameter 'app'; .*, and what it yields is app.state"),
    ],
)
def test_wrong_lifespan_is_refused_by_the_app(lifespan: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        App("shop", store="memory://", lifespan=lifespan)


def test_sync_context_manager_as_lifespan_is_refused_at_the_start() -> None:
    wrong: Any = in_sync_code
    app = App("shop", store="memory://", lifespan=wrong)
    with pytest.raises(DeclarationError, match="lifespan=in_sync_code returns no async context manager: it is"):
        app.background().__enter__()
    assert app.status()["status"] == "stopped"


@pytest.mark.parametrize("lifespan", [optional, functools.partial(optional, 17)])
def test_lifespan_with_optional_parameters_is_entered(lifespan: Any) -> None:
    app: App[int] = App("shop", store="memory://", lifespan=lifespan)
    with app.background():
        assert app.state == 17


def test_text_instead_of_a_list_of_modules_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"include='shop.mail' is one text; .* include=\['shop.mail'\]"):
        App("shop", store="memory://", include="shop.mail")
