"""The generator of details: a fake one that misbehaves by plan, or any server with the API of OpenAI."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

_FIRST = ["Ada", "Bero", "Cleo", "Dagny", "Eskil", "Fenja", "Gorm", "Hale", "Idun", "Jorun", "Kestrel", "Lund", "Mira"]
_SECOND = ["ash", "brook", "crag", "dale", "ember", "fell", "grove", "hollow", "isle", "keep", "loch", "moor", "nook"]
_THIRD = [
    "the Old",
    "of Salt",
    "of Glass",
    "the Quiet",
    "of Nine",
    "of Reeds",
    "the Far",
    "of Iron",
    "of Rain",
    "the Red",
]


class TooManyRequests(Exception):
    """Status 429, as clients of HTTP raise it."""

    status_code = 429

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"429: try again in {retry_after:g} s")
        self.response = SimpleNamespace(status_code=429, headers={"retry-after": f"{retry_after:g}"})


class Poison(Exception):
    """Status 400: the request itself is wrong, and a repeat would be refused again."""

    status_code = 400


class Generator(Protocol):
    """Makes items of a type."""

    async def generate(self, task_id: str, attempt: int, kind: str, count: int, style: dict[str, Any]) -> list[Any]: ...


@dataclass
class Fake:
    """Deterministic by task and try. A throttled attempt has the same number as before, so tries are counted here.

    seconds: the shortest and the longest answer. limited, slow, poisoned: shares of calls that get 429, that time out,
    and of tasks whose every call is refused. repeated: share of names that were given before.
    """

    seed: int = 1
    seconds: tuple[float, float] = (0.08, 0.4)
    limited: float = 0.05
    slow: float = 0.01
    poisoned: float = 0.0005
    repeated: float = 0.1
    retry_after: float = 1.0
    tries: dict[str, int] = field(default_factory=dict[str, int], init=False)

    async def generate(self, task_id: str, attempt: int, kind: str, count: int, style: dict[str, Any]) -> list[Any]:
        number = self.tries[task_id] = max(attempt, self.tries.get(task_id, 0) + 1)
        if self.refuses(task_id):
            raise Poison(f"400: {task_id} is refused")
        chance = Random(f"{self.seed} {task_id} {number}")
        fate = chance.random()
        if fate < self.limited:
            raise TooManyRequests(self.retry_after)
        if fate < self.limited + self.slow:
            raise TimeoutError("the model did not answer")
        await asyncio.sleep(chance.uniform(*self.seconds))
        text = f"A {kind.replace('_', ' ')} made for you."
        names: list[str] = []
        for _ in range(count):
            if names and chance.random() < self.repeated:
                names.append(chance.choice(names))
            else:
                names.append(self._name(chance, style))
        return [{"name": name, "text": text} for name in names]

    def refuses(self, task_id: str) -> bool:
        """Whether a task is poison."""
        return Random(f"{self.seed} {task_id}").random() < self.poisoned

    def _name(self, chance: Random, style: dict[str, Any]) -> str:
        """Names that are not similar to each other."""
        words = [f"{chance.choice(_FIRST)}{chance.choice(_SECOND)}", chance.choice(_THIRD), str(style.get("tone", ""))]
        return " ".join([*filter(None, words), f"{chance.randrange(16**8):08x}"])


@dataclass
class OpenAICompatible:
    """Any server with the API of OpenAI: LiteLLM, vLLM, Ollama, OpenAI."""

    url: str
    key: str
    model: str

    async def generate(self, task_id: str, attempt: int, kind: str, count: int, style: dict[str, Any]) -> list[Any]:  # noqa: ARG002
        import httpx

        prompt = (
            f"Invent {count} distinct entries of type {kind} for a story in the style {json.dumps(style)}. "
            'Answer with JSON only: {"items": [{"name": "…", "text": "…"}]}'
        )
        async with httpx.AsyncClient(timeout=30) as client:
            answer = await client.post(
                f"{self.url.rstrip('/')}/chat/completions",
                headers={"Authorization": f"Bearer {self.key}"},
                json={
                    "model": self.model,
                    "messages": [{"role": "user", "content": prompt}],
                    "response_format": {"type": "json_object"},
                },
            )
        answer.raise_for_status()
        items = json.loads(answer.json()["choices"][0]["message"]["content"])["items"]
        return list(items)[:count]


_TAKE = """
-- KEYS[1]: the bucket. ARGV: tokens per second, burst. Returns 0 if a token was taken, else the ms until there is one.
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if stored[1] then
  tokens = math.min(burst, stored[1] + math.max(0, now - stored[2]) / 1000 * rate)
end
local wait = 0
if tokens >= 1 then
  tokens = tokens - 1
else
  wait = math.ceil((1 - tokens) / rate * 1000)
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], 60000)
return wait
"""


@dataclass
class Metered:
    """A generator under a quota that other programs use, too: a token bucket in Valkey, by the clock of the server.

    The bucket is all that is kept there. If it is lost, the next call finds a full one.
    """

    generator: Generator
    url: str
    rate: float = 50
    burst: int = 50
    bucket: str = "quota:model"
    _client: Any = None

    async def generate(self, task_id: str, attempt: int, kind: str, count: int, style: dict[str, Any]) -> list[Any]:
        await self._take()
        return await self.generator.generate(task_id, attempt, kind, count, style)

    async def _take(self) -> None:
        from redis.asyncio import Redis

        if self._client is None:
            self._client = Redis.from_url(self.url)
        while wait := await self._client.eval(_TAKE, 1, self.bucket, self.rate, self.burst):  # noqa: ASYNC110
            await asyncio.sleep(wait / 1000)


def with_quota(generator: Generator) -> Generator:
    """The generator, under the quota in the Valkey or Redis that ``$GENESIS_QUOTA`` names."""
    url = os.environ.get("GENESIS_QUOTA")
    return Metered(generator, url) if url else generator


def from_environment() -> Generator:
    """A real model if ``$OPENAI_BASE_URL`` is set, else the fake one; ``$GENESIS_FAKE`` has its settings as JSON."""
    url = os.environ.get("OPENAI_BASE_URL")
    if url:
        model = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
        return OpenAICompatible(url, os.environ.get("OPENAI_API_KEY", ""), model)
    settings = json.loads(os.environ.get("GENESIS_FAKE", "{}"))
    if "seconds" in settings:
        settings["seconds"] = tuple(settings["seconds"])
    return Fake(**settings)
