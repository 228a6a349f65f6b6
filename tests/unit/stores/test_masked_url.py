"""No message shows the password of a URL, however it is mistyped."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from click.testing import CliRunner

from onthedot import App
from onthedot.cli import main
from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.masked_url import masked

CANARY = "hunter2"
MALFORMED = {
    "scheme mistyped": f"redi://:{CANARY}@127.0.0.1:1/0",
    "scheme in capitals": f"REDIS://:{CANARY}@127.0.0.1:1/0",
    "scheme of another store": f"mysql://shop:{CANARY}@127.0.0.1/shop",
    "no scheme": f"shop:{CANARY}@127.0.0.1:6379",
    "one slash": f"redis:/:{CANARY}@127.0.0.1:1",
    "no colon": f"postgresql//shop:{CANARY}@127.0.0.1/shop",
    "space before": f" postgresql://shop:{CANARY}@127.0.0.1/shop",
    "slash in the password": f"postgresql://shop:1{CANARY}/x@127.0.0.1:1/shop",
    "number sign in the password": f"redis://:{CANARY}#x@127.0.0.1:1/0",
    "question mark in the password": f"postgresql://shop:{CANARY}?x@127.0.0.1:1/shop",
    "at sign in the password": f"redis://:{CANARY}@x@127.0.0.1:port/0",
    "no host": f"redis://:{CANARY}",
    "no host, Postgres": f"postgresql://shop:{CANARY}/shop",
    "slash in the password of Redis": f"redis://:{CANARY}/{CANARY}@127.0.0.1:1/0",
    "bracket": f"postgresql://shop:{CANARY}@[::1/shop",
    "password as an option": f"posgresql://127.0.0.1:1/shop?user=shop&password={CANARY}",
    "unknown option": f"redis+sentinel://127.0.0.1:1/s?sentinel_password={CANARY}&retry=1",
    "wrong option": f"postgresql://shop:{CANARY}@127.0.0.1:1/shop?lease=soon",
}


def outcome_of(url: str) -> str:
    """The error that is raised for it, with the chain of causes that a log would show."""
    shown: list[str] = []

    async def connected() -> None:
        store = connect(url, SystemClock())
        await asyncio.wait_for(store.open(), 20)
        await store.close()

    for attempt in (lambda: App(store=url), lambda: asyncio.run(connected())):
        try:
            attempt()
        except Exception as error:
            shown += [repr(error), *traceback.format_exception(error)]
    return "\n".join(line for line in "\n".join(shown).splitlines() if "hunter" in line or ": " in line)


@pytest.mark.parametrize("url", MALFORMED.values(), ids=MALFORMED.keys())
def test_password_of_a_malformed_url_is_in_no_exception(url: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = outcome_of(url)
    assert shown, "it is not malformed"
    assert CANARY not in shown + caplog.text


@pytest.mark.parametrize("command", [["doctor"], ["doctor", "--json"], ["task", "list"], ["schema", "check"]])
@pytest.mark.parametrize("url", MALFORMED.values(), ids=MALFORMED.keys())
def test_password_of_a_malformed_url_is_not_printed(url: str, command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "-n", "shop"], env={"ONTHEDOT_STORE": url})
    assert result.exit_code != 0
    assert CANARY not in result.output
    assert result.exception is None or CANARY not in "".join(traceback.format_exception(result.exception))


def test_store_that_is_no_text_is_not_shown() -> None:
    url: Any = f"redis://:{CANARY}@127.0.0.1".encode()
    with pytest.raises(TypeError, match="bytes") as raised:
        App(store=url)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@cache:6379/0?lease=5", "redis://…@cache:6379/0"),
        ("redis+sentinel://h1:26379,h2/service/0", "redis+sentinel://h1:26379,h2/service/0"),
        ("postgresql://me@[::1]:5432/shop", "postgresql://…@[::1]:5432/shop"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
    ],
)
def test_masked_url_names_the_place(url: str, shown: str) -> None:
    assert masked(url) == shown
