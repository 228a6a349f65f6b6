"""De-duplication: equal and similar names, reasons of refusals, and the cap."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from onthedot import BatchPolicy, Dedup
from onthedot.batches.dedup import MAX_SIMILAR, Selector, similar_by_difflib

RATIOS = {"character_name": 0.97, "organization": 0.95, "location_name": 0.95, "skill": 0.93, "item": 0.92}
POLICY = BatchPolicy(dedup=Dedup(key="name", threshold=RATIOS, other=0.95))


@pytest.fixture(params=["rapidfuzz", "difflib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "difflib":
        monkeypatch.setitem(sys.modules, "rapidfuzz.fuzz", None)  # as if it was not installed
    name: str = request.param
    return name


def selector(kind: str = "item", count: int | None = None, policy: BatchPolicy = POLICY) -> Selector:
    return Selector(policy, kind, count, warn=lambda text: pytest.fail(text))


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize("other", ["ANN LEE", "  ann   lee ", "Ann\u00a0Lee", "\uff21nn \uff2cee", "Ann\tLee\n"])
def test_names_are_equal_after_normalisation(other: str) -> None:
    found = selector().select(named("Ann Lee", other))
    assert found.items == named("Ann Lee")
    assert found.refused == {"duplicate": 1}


@pytest.mark.parametrize("kind", RATIOS)
def test_similar_names_are_refused_from_the_threshold_on(library: str, kind: str) -> None:
    """Of two names of 100 characters, n are other ones: the ratio is (100 - n) / 100."""
    allowed = round((1 - RATIOS[kind]) * 100)
    first = "".join(chr(0x4E00 + at) for at in range(100))
    at_threshold = "".join(chr(0x6E00 + at) for at in range(allowed)) + first[allowed:]
    below = "".join(chr(0x6E00 + at) for at in range(allowed + 1)) + first[allowed + 1 :]
    assert selector(kind).select(named(first, at_threshold)).refused == {"similar": 1}
    assert selector(kind).select(named(first, below)).refused == {}


def test_type_without_threshold_uses_other(library: str) -> None:
    assert selector("spell").select(named("a" * 19 + "b", "a" * 19 + "c")).refused == {"similar": 1}
    exact = BatchPolicy(dedup=Dedup())
    assert selector("spell", policy=exact).select(named("a" * 19 + "b", "a" * 19 + "c")).refused == {}


@dataclass
class Name:
    name: str | None


@pytest.mark.parametrize("item", [{"name": "Ann"}, Name("Ann"), "Ann"])
def test_existing_wins_over_items_of_any_form(item: object) -> None:
    found = selector()
    found.add_existing(["ann"])
    assert found.select([item]).refused == {"duplicate": 1}


@pytest.mark.parametrize(
    "item", [{}, {"name": ""}, {"name": "  "}, {"name": None}, {"name": 3}, Name(None), 7, "", None]
)
def test_items_without_a_name_are_counted(item: object) -> None:
    assert selector().select([item]).refused == {"no name": 1}


def test_validate_names_the_reason() -> None:
    def check(item: Any) -> bool | str:
        return "too long" if len(item["name"]) > 3 else item["name"] != "bob"

    policy = BatchPolicy(validate=check, dedup=Dedup())
    found = selector(policy=policy).select(named("ann", "anna", "bob", "ANN", "otto"))
    assert found.items == named("ann")
    assert found.refused == {"too long": 2, "invalid": 1, "duplicate": 1}


def test_surplus_is_refused() -> None:
    found = selector(count=2, policy=BatchPolicy()).select([1, 2, 3, 4])
    assert found.items == [1, 2]
    assert found.refused == {"surplus": 2}


def test_items_of_an_earlier_run_are_known() -> None:
    found = selector(count=2)
    found.add_accepted(named("ann"))
    selection = found.select(named("Ann", "bob", "otto"))
    assert (selection.items, selection.refused) == ([{"name": "bob"}], {"duplicate": 1, "surplus": 1})


def test_copy_of_a_selector_takes_items_by_itself() -> None:
    first = selector(count=2)
    second = first.copy()
    second.select(named("ann", "bob"))
    assert first.accepted == 0
    assert first.select(named("ann")).refused == {}


def test_beyond_the_cap_only_equal_names_are_refused_with_one_warning(library: str) -> None:
    warnings: list[str] = []
    found = Selector(POLICY, "item", None, warnings.append)
    found.add_existing(f"{number:040b}" for number in range(MAX_SIMILAR + 1))
    taken = found.select(named("x" * 19 + "a", "x" * 19 + "b", "x" * 19 + "a"))
    assert taken.refused == {"duplicate": 1}
    assert len(warnings) == 1
    assert "2,000 names" in warnings[0]


def test_up_to_the_cap_similar_names_are_refused(library: str) -> None:
    found = selector()
    found.add_existing([f"{number:04}" * 5 for number in range(MAX_SIMILAR)])
    assert found.select(named("0007" * 5 + "!")).refused == {"similar": 1}


def test_difflib_measures_the_whole_of_long_names() -> None:
    """Without autojunk: from 200 characters on it would drop frequent ones."""
    assert similar_by_difflib("ab" * 150, "ab" * 149 + "ba", 0.95)
