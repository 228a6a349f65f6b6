"""What every test may rely on. Plain pytest: nobody has to install an asyncio plugin to test with onthedot."""

from __future__ import annotations

import asyncio
import inspect

import pytest

collect_ignore_glob = ["typing/use_*.py"]  # programs for type checkers, not to be run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-services",
        action="store_true",
        help="a server that a test needs and cannot start is a failure, not a skip (CI=true ./dev test sets this)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def` tests, each in a fresh event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    # Debug mode times every callback and keeps every traceback, which the figures of timing tests would show.
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}), debug=False)
    return True
