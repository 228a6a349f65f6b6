"""A script that fails at its nth write is not rolled back: the next calls, or a repair, bring every task to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from hashlib import sha1

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreError
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.scripts import SCRIPTS, TEXTS, Script
from tests.support.aborted_calls import ABORTED, CALLS, Life
from tests.support.services import valkey

MOST_WRITES = 20
CALL = "local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack"
WRITES = "HSET HSETNX HDEL HINCRBY ZADD ZREM ZREMRANGEBYRANK SADD SREM DEL XADD"
ABORTING = """
local pack, unpacked, written, writes = cmsgpack.pack, cmsgpack.unpack, 0, {}
for name in ('%s'):gmatch('%%S+') do writes[name] = true end
local function call(command, ...)
  if writes[command] then written = written + 1 end
  if written == %d then error('aborted') end
  return redis.call(command, ...)
end
"""


@contextmanager
def aborted(verb: str, number: int) -> Iterator[None]:
    """The script of the verb fails instead of its nth write."""
    script = SCRIPTS[verb]
    assert CALL in script.text
    text = script.text.replace(CALL, ABORTING % (WRITES, number))
    broken = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    SCRIPTS[verb] = broken
    TEXTS[broken.sha] = text
    try:
        yield
    finally:
        SCRIPTS[verb] = script
        del TEXTS[broken.sha]


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[RedisStore, Life]]:
    clock = ManualClock()
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    try:
        life = Life(store, clock)
        await life.begin()
        yield store, life
    finally:
        await store.close()
        valkey.forget(store.prefix)


@pytest.mark.parametrize("name", CALLS)
async def test_every_task_ends_after_a_script_that_was_aborted(name: str) -> None:
    call = CALLS[name]
    for number in range(1, MOST_WRITES + 1):
        async with opened() as (store, life):
            with aborted(call.verb, number):
                try:
                    await call.run(life)
                except StoreError as error:
                    if ABORTED not in str(error):
                        raise
                else:
                    break  # it has fewer writes
            await life.end(partial(store.unplaced, requeue=True))
            assert await store.unplaced() == []
    assert number > 1
