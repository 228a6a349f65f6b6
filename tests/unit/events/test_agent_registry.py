"""Agents are found by any form of their names, and refused where they could not work."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from onthedot import AtMost, BadEvent, BadLimit, DeclarationError, DuplicateTask, Rate
from onthedot.events.agent_registry import AgentRegistry
from onthedot.events.agents import BaseAgent, agent
from onthedot.events.event import Event

PLACED = "Shop.Order.Placed"


class Worldbuilder(BaseAgent):
    id = "worldbuilder"
    aliases = ("world_builder",)
    consumes = ("Genesis.Session.DetailBatchGenerationRequested",)

    async def process(self, event: Event) -> None: ...


class CharacterExpert(BaseAgent):
    id = "characterexpert"
    consumes = ("Genesis.Session.DetailBatchGenerationRequested",)

    def process(self, event: Event) -> None: ...


def test_names_are_found_in_any_form() -> None:
    registry = AgentRegistry()
    worldbuilder = Worldbuilder()
    expert = CharacterExpert()
    registry.register(worldbuilder)
    registry.register(expert, aliases=["character-expert"])
    assert registry.ids == ("worldbuilder", "characterexpert")
    for name in ("worldbuilder", "world_builder", "world-builder", " World-Builder\n", "WORLDBUILDER"):
        assert registry.find(name) is worldbuilder
        assert registry.canonical(name) == "worldbuilder"
    for name in ("characterexpert", "character_expert", "Character-Expert"):
        assert registry.find(name) is expert
    assert registry.find("critic") is None
    assert registry.canonical(" The-Critic ") == "the_critic"
    assert registry.aliases_of("characterexpert") == ("character_expert",)
    assert len(registry) == 2


def test_registries_are_separate() -> None:
    registry = AgentRegistry()
    registry.register(Worldbuilder())
    assert AgentRegistry().ids == ()


def test_removed_agent_leaves_its_names() -> None:
    registry = AgentRegistry()
    registry.register(Worldbuilder())
    registry.register(CharacterExpert())
    registry.unregister("World-Builder")
    assert registry.find("worldbuilder") is None
    assert registry.find("world_builder") is None
    registry.register(Worldbuilder())
    registry.clear()
    assert (registry.ids, registry.find("world_builder")) == ((), None)
    with pytest.raises(KeyError, match="no agent 'worldbuilder'"):
        registry.unregister("worldbuilder")


@pytest.mark.parametrize(
    ("agent_id", "aliases", "taken"),
    [
        ("worldbuilder", (), "worldbuilder"),
        ("world_builder", (), "world_builder"),
        ("other", ("World-Builder",), "world_builder"),
        ("other", ("worldbuilder",), "worldbuilder"),
    ],
)
def test_name_that_is_taken_is_refused_and_both_agents_are_named(
    agent_id: str, aliases: tuple[str, ...], taken: str
) -> None:
    registry = AgentRegistry()
    registry.register(Worldbuilder())
    other = CharacterExpert()
    other.id = agent_id
    with pytest.raises(DuplicateTask) as raised:
        registry.register(other, aliases)
    assert str(raised.value).startswith(f"'{taken}' is a name of ")
    for part in ("Worldbuilder", "agent 'worldbuilder'", "CharacterExpert", f"agent '{agent_id}'"):
        assert part in str(raised.value)
    assert registry.ids == ("worldbuilder",)


def test_same_agent_again_adds_aliases() -> None:
    registry = AgentRegistry()
    worldbuilder = Worldbuilder()
    registry.register(worldbuilder)
    registry.register(worldbuilder, aliases=("builder", "worldbuilder"))
    assert registry.ids == ("worldbuilder",)
    assert registry.find("builder") is worldbuilder
    assert registry.find("world-builder") is worldbuilder


class Listener:
    def __init__(self, refuses: bool = False) -> None:
        self.seen: list[str] = []
        self.refuses = refuses

    def agent_registered(self, agent: BaseAgent, aliases: tuple[str, ...]) -> None:
        if self.refuses:
            raise DeclarationError("not here")
        self.seen.append(f"+{agent.id} {' '.join(aliases)}".strip())

    def agent_removed(self, agent_id: str) -> None:
        self.seen.append(f"-{agent_id}")


def test_apps_learn_of_agents_as_long_as_they_live() -> None:
    registry = AgentRegistry()
    registry.register(Worldbuilder())
    listener = Listener()
    registry.listen(listener)
    registry.register(CharacterExpert())
    registry.unregister("worldbuilder")
    assert listener.seen == ["+worldbuilder world_builder", "+characterexpert", "-worldbuilder"]
    seen = listener.seen
    del listener
    gc.collect()
    registry.register(Worldbuilder())
    assert len(seen) == 3


def test_agent_that_one_app_refuses_is_in_none() -> None:
    registry = AgentRegistry()
    first = Listener()
    second = Listener(refuses=True)
    registry.listen(first)
    registry.listen(second)
    with pytest.raises(DeclarationError, match="not here"):
        registry.register(Worldbuilder())
    assert first.seen == ["+worldbuilder world_builder", "-worldbuilder"]
    assert registry.ids == ()
    assert registry.find("world_builder") is None


# -- agents that could not work


def made(**attributes: Any) -> BaseAgent:
    class Mailer(BaseAgent):
        id = "mailer"
        consumes = (PLACED,)

        async def process(self, event: Event) -> None: ...

    mailer = Mailer()
    for name, value in attributes.items():
        setattr(mailer, name, value)
    return mailer


def refusal(value: Any) -> str:
    registry = AgentRegistry()
    with pytest.raises(DeclarationError) as raised:
        registry.register(value)
    assert registry.ids == ()
    return str(raised.value)


def test_class_instead_of_an_instance_is_refused() -> None:
    assert refusal(Worldbuilder) == "register() takes an agent, not a class: register(Worldbuilder())"


def test_other_objects_are_refused() -> None:
    assert refusal(print).startswith("register() takes a BaseAgent, not builtin_function_or_method; ")


def test_agent_without_process_is_refused() -> None:
    class Idle(BaseAgent):
        id = "idle"
        consumes = (PLACED,)

    assert refusal(Idle()).startswith("agent 'idle' has no process(self, event)")


@pytest.mark.parametrize(
    ("agent_id", "advice"),
    [("", ""), (7, ""), ("World-Builder", "; write 'world_builder'"), ("a b", ""), ("a.b", ""), ("x" * 101, "")],
)
def test_malformed_id_is_refused(agent_id: Any, advice: str) -> None:
    text = f"id of Mailer {agent_id!r} is not the name of an agent: 1 to 100 of a-z 0-9 _{advice}"
    assert refusal(made(id=agent_id)) == text


def test_reserved_id_is_refused() -> None:
    assert "callback" in refusal(made(id="callback"))
    assert "reserved" in refusal(made(aliases=["Callback"]))


def test_consumes_must_name_types() -> None:
    assert refusal(made(consumes=())).startswith("agent 'mailer': consumes is empty")
    assert refusal(made(consumes="")).startswith("pattern of event types '' has 1 segments")
    assert refusal(made(consumes=[7])) == "agent 'mailer': consumes must be a list of names, not [7]"
    assert refusal(made(consumes=7)) == "agent 'mailer': consumes must be a list of names, not 7"
    assert refusal(made(consumes="*")) == """agent 'mailer': consumes="*" needs topics = ("…",), which it reads"""
    with pytest.raises(BadEvent):
        AgentRegistry().register(made(consumes=("Shop.*.Placed",)))
    with pytest.raises(BadEvent, match="orders of ann"):
        AgentRegistry().register(made(consumes="*", topics=["orders of ann"]))


def test_types_may_be_one_text_or_a_pattern() -> None:
    AgentRegistry().register(made(consumes=PLACED))
    AgentRegistry().register(made(consumes=["Shop.Order.*"]))
    AgentRegistry().register(made(consumes="*", topics=("orders",)))


async def asynchronous(*args: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"accepts": asynchronous}, "accepts is async"),
        ({"classify_error": asynchronous}, "classify_error is async"),
        ({"accepts": None}, "accepts is None, which cannot be called"),
        ({"process": lambda: None}, "takes one argument, the event"),
        ({"process": 5}, "process is 5"),
        ({"process": lambda event: (yield event)}, "is a generator"),
        ({"aliases": "mail"}, "aliases must be a list of names, not 'mail'"),
        ({"aliases": ["a b"]}, "alias 'a b' is not the name of an agent"),
        ({"ordered": 1}, "ordered must be True or False, not 1"),
        ({"max_in_flight": 0}, "max_in_flight must be a whole number from 1, not 0"),
        ({"max_in_flight": True}, "max_in_flight must be a whole number from 1, not True"),
        ({"give_up": -1}, "give_up"),
        ({"give_up": 0}, "give_up must be more than 0 seconds, not 0"),
        ({"give_up": "1m"}, "give_up"),
        ({"fails_as": "Failed"}, "'Failed' has 1 segments"),
        ({"max_retries": -1}, "agent 'mailer': max_retries must be a whole number from 0, not -1"),
        ({"unique": True}, "agent 'mailer': unique is not for agents"),
        ({"max_pending": 10}, "max_pending is not for agents: max_in_flight"),
        ({"executor": "process"}, "runs on the event loop or in a thread"),
        ({"limits": [Rate("10/s", name="llm", burst=5, cost="count")]}, "cost='count' must be a number"),
    ],
)
def test_attributes_that_cannot_work_are_refused(attributes: dict[str, Any], text: str) -> None:
    assert text in refusal(made(**attributes))


def test_limits_go_by_fields_of_the_event() -> None:
    AgentRegistry().register(made(limits=[AtMost(2, by="aggregate_id")]))
    with pytest.raises(BadLimit, match="it takes key, type, aggregate_id"):
        AgentRegistry().register(made(limits=[AtMost(2, by="customer")]))


# -- functions


def test_function_becomes_an_agent_and_remains_callable() -> None:
    @agent(
        "expert", consumes=PLACED, aliases=("the_expert",), accepts=lambda event: False, max_retries=7, ordered=False
    )
    def expert(event: Event) -> str:
        """Knows."""
        return event.id

    registry = AgentRegistry()
    registry.register(expert)
    assert registry.find("the-expert") is expert
    event = Event(PLACED, {}, aggregate_id="1", id="e1")
    assert expert(event) == "e1"
    assert (expert.accepts(event), expert.max_retries, expert.ordered, expert.timeout) == (False, 7, False, 60)
    assert expert.__doc__ == "Knows."
    assert expert.__module__ == __name__


def test_unknown_attribute_of_a_function_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no attribute 'max_retry'; did you mean 'max_retries'"):
        agent("expert", consumes=PLACED, max_retry=3)(lambda event: None)  # type: ignore[call-arg]
