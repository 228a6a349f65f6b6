"""A model with the API of OpenAI, by a server that answers as one does."""

from __future__ import annotations

import json

import httpx
import pytest

from examples.genesis.llm import Fake, OpenAICompatible, from_environment
from onthedot.errors import Snooze
from onthedot.events import classify
from tests.support.answering_server import Answer, answering

pytestmark = pytest.mark.once


def completion(*names: str) -> Answer:
    content = json.dumps({"items": [{"name": name, "text": ""} for name in names]})
    return Answer(200, {"choices": [{"message": {"role": "assistant", "content": content}}]})


async def generate(url: str, count: int = 2) -> list[dict[str, str]]:
    model = OpenAICompatible(f"{url}/v1/", "key-1", "small")
    return await model.generate("t1", 1, "item", count, {"tone": "grim"})


async def test_model_is_asked_for_items_in_json_and_returns_at_most_so_many() -> None:
    with answering(completion("a", "b", "c")) as server:
        items = await generate(server.url)
        (request,) = server.requests
    assert [item["name"] for item in items] == ["a", "b"]
    assert request.path == "/v1/chat/completions"
    assert request.headers["Authorization"] == "Bearer key-1"
    sent = json.loads(request.body)
    assert (sent["model"], sent["response_format"]) == ("small", {"type": "json_object"})
    (message,) = sent["messages"]
    assert "2 distinct entries of type item" in message["content"]
    assert '"tone": "grim"' in message["content"]


async def test_throttled_call_waits_as_the_server_says_and_another_error_of_the_client_is_permanent() -> None:
    with answering(Answer(429, {}, {"Retry-After": "7"})) as server:
        with pytest.raises(httpx.HTTPStatusError) as raised:
            await generate(server.url)
        decision = classify(raised.value)
        assert isinstance(decision, Snooze)
    with answering(Answer(401, {})) as server:
        with pytest.raises(httpx.HTTPStatusError) as raised:
            await generate(server.url)
        assert classify(raised.value) == "permanent"


async def test_server_that_does_not_answer_in_json_is_asked_again() -> None:
    with answering(Answer(200, {"choices": [{"message": {"content": "Sure! Here they are:"}}]})) as server:
        with pytest.raises(ValueError, match="Expecting value") as raised:
            await generate(server.url)
        assert classify(raised.value) == "retriable"


def test_environment_chooses_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENESIS_FAKE", '{"seconds": [0.1, 0.2]}')
    assert from_environment() == Fake(seconds=(0.1, 0.2))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:4000/v1")
    monkeypatch.setenv("OPENAI_MODEL", "small")
    monkeypatch.setenv("OPENAI_API_KEY", "key-1")
    assert from_environment() == OpenAICompatible("http://127.0.0.1:4000/v1", "key-1", "small")
