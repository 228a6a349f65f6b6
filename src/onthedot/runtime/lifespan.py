"""The user's ``lifespan`` and ``include``, checked where they are given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, TypeVar

from onthedot.errors import DeclarationError

S = TypeVar("S")
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[S]]

_WANTED = "it is an async generator function without parameters, under @contextlib.asynccontextmanager"


def check_lifespan(lifespan: Lifespan[S] | None) -> Lifespan[S] | None:
    """Return it, or raise DeclarationError. A sync context manager is found when it is entered."""
    if lifespan is None:
        return None
    if not callable(lifespan):
        raise DeclarationError(f"lifespan={lifespan!r}: {_WANTED}")
    if inspect.isasyncgenfunction(lifespan) or inspect.iscoroutinefunction(lifespan):
        raise DeclarationError(f"lifespan={_name(lifespan)}: @contextlib.asynccontextmanager is missing above it")
    if parameters := _required_parameters(lifespan):
        problem = f"lifespan={_name(lifespan)} has the parameter {parameters[0]!r}"
        raise DeclarationError(f"{problem}; {_WANTED}, and what it yields is app.state")
    return lifespan


def open_lifespan(lifespan: Lifespan[S]) -> AbstractAsyncContextManager[S]:
    manager: object = lifespan()
    if not isinstance(manager, AbstractAsyncContextManager):
        raise DeclarationError(f"lifespan={_name(lifespan)} returns no async context manager: {_WANTED}")
    return manager


def check_include(include: Iterable[str]) -> tuple[str, ...]:
    if isinstance(include, str):
        raise DeclarationError(f"include={include!r} is one text; write a list of modules: include=[{include!r}]")
    return tuple(include)


def _required_parameters(function: Callable[..., object]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a built-in has no signature
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in optional]


def _name(function: object) -> str:
    return getattr(function, "__name__", repr(function))
