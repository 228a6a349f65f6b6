"""Sizes of parts, and the checks of a policy."""

from __future__ import annotations

import pytest

from onthedot import BatchPolicy, DeclarationError, Dedup, SizeTable

SIZES = {"character_name": 20, "location_name": 20, "item": 16, "skill": 10, "organization": 10}
TABLE = SizeTable(SIZES, other=20)


@pytest.mark.parametrize("kind", SIZES)
def test_sizes_change_at_the_base_and_at_eight_times_the_base(kind: str) -> None:
    base = SIZES[kind]
    assert TABLE(kind, 1) == (1,)
    assert TABLE(kind, base - 1) == (base - 1,)
    assert TABLE(kind, base) == (base,)
    assert TABLE(kind, base + 1) == (base, 1)
    assert TABLE(kind, 8 * base) == (base,) * 8
    large = min(2 * base, 50)
    sizes = TABLE(kind, 8 * base + 1)
    assert sum(sizes) == 8 * base + 1
    assert set(sizes[:-1]) == {large}
    assert sizes[-1] <= large


@pytest.mark.parametrize(
    ("kind", "count", "sizes"),
    [
        ("character_name", 21, (20, 1)),
        ("character_name", 160, (20,) * 8),
        ("character_name", 161, (40, 40, 40, 40, 1)),
        ("item", 129, (32, 32, 32, 32, 1)),
        ("spell", 21, (20, 1)),
    ],
)
def test_sizes_of_the_examples(kind: str, count: int, sizes: tuple[int, ...]) -> None:
    assert TABLE(kind, count) == sizes


def test_unknown_type_without_other_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no size of parts for type 'spell'; there are: item, skill\."):
        SizeTable({"item": 16, "skill": 10})("spell", 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SizeTable({"item": 0}),
        lambda: SizeTable({}, other=0),
        lambda: SizeTable({3: 1}),  # type: ignore[dict-item]
        lambda: Dedup(key=""),
        lambda: Dedup(threshold={"item": 0}),
        lambda: Dedup(other=1.01),
        lambda: BatchPolicy(split=3),  # type: ignore[arg-type]
        lambda: BatchPolicy(validate=True),  # type: ignore[arg-type]
        lambda: BatchPolicy(dedup=0.95),  # type: ignore[arg-type]
        lambda: BatchPolicy(top_up=-1),
        lambda: BatchPolicy(over=0.9),
        lambda: BatchPolicy(over=float("nan")),
        lambda: BatchPolicy(at_once=0),
    ],
)
def test_policy_that_cannot_work_is_refused_where_it_is_written(make: object) -> None:
    assert callable(make)
    with pytest.raises(DeclarationError):
        make()


@pytest.mark.parametrize(
    ("split", "problem"),
    [
        (lambda kind, count: [count - 1], "have the sum 9"),
        (lambda kind, count: [count, 0], "must be a whole number from 1"),
        (lambda kind, count: count, "must return a list of sizes"),
        (lambda kind, count: [1] * 2000, "have the sum 2000"),
    ],
)
def test_split_that_loses_items_is_refused(split: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BatchPolicy(split=split).sizes("names", "item", 10)  # type: ignore[arg-type]


def test_batch_has_at_most_a_thousand_parts() -> None:
    policy = BatchPolicy(split=lambda kind, count: [1] * count)
    assert len(policy.sizes("names", "", 1000)) == 1000
    with pytest.raises(ValueError, match="at most 1,000 parts, not 1,001"):
        policy.sizes("names", "", 1001)
