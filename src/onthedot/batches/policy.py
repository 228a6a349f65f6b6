"""How a batch is split, checked and topped up: values that live with the code of its task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from onthedot.errors import shortened_list
from onthedot.model.options import parse_bound
from onthedot.model.value_errors import InvalidOption, SettingError

if TYPE_CHECKING:
    from onthedot.api.functions import Enqueuer

MAX_PARTS = 1000  # of one batch, top-ups not counted
_MANY = 8  # from this multiple of the base on, parts are larger
_LARGEST = 50  # items of such a part

Split: TypeAlias = Callable[[str, int], Sequence[int]]


@dataclass(frozen=True)
class SizeTable:
    """The sizes of parts by type of item.

    A count up to the base of its type is one part. Above 8 × base, a part has 2 × base items, at most 50; else base.

    Args:
        sizes: The base by type.
        other: The base of types that are not in the table; None: such a type is an error.

    >>> table = SizeTable({"character_name": 20, "item": 16}, other=10)
    >>> table("character_name", 21), table("character_name", 161), table("spell", 25)
    ((20, 1), (40, 40, 40, 40, 1), (10, 10, 5))
    """

    sizes: Mapping[str, int]
    other: int | None = None

    def __post_init__(self) -> None:
        for name, base in self.sizes.items():
            if not isinstance(name, str):
                raise SettingError(f"SizeTable: {name!r} is no type; types are strings")
            parse_bound(base, f"SizeTable: the size of {name!r}")
        if self.other is not None:
            parse_bound(self.other, "SizeTable(other)")

    def __call__(self, kind: str, count: int) -> tuple[int, ...]:
        """Returns the sizes of the parts.

        Args:
            kind: The type of the items.
            count: How many items the batch has.
        """
        base = self.sizes.get(kind, self.other)
        if base is None:
            known = shortened_list(sorted(self.sizes)) or "none"
            raise InvalidOption(
                f"no size of parts for type {kind!r}; there are: {known}. Or give SizeTable(…, other=20)"
            )
        if count <= base:
            return (count,)
        size = base
        if count > _MANY * base:
            size = min(2 * base, _LARGEST)
        return slices(count, size)


def slices(count: int, size: int) -> tuple[int, ...]:
    """
    >>> slices(7, 3)
    (3, 3, 1)
    """
    whole, rest = divmod(count, size)
    if not rest:
        return (size,) * whole
    return (*(size,) * whole, rest)


@dataclass(frozen=True)
class Dedup:
    """Which items of a batch are the same. Earlier items win, and items that exist already win over all.

    Two names are equal after NFKC, with white space trimmed and collapsed, whatever their case. Two names are similar
    from a ratio of matching characters on. Similar names are looked for among up to 2,000 accepted ones.

    Args:
        key: The attribute or dict key that is the name of an item. An item that is a string is its own name.
        threshold: The ratio by type, above 0 and up to 1.
        other: The ratio for other types; None: only equal names are the same.

    >>> Dedup(threshold={"skill": 0.93}, other=0.95).ratio("skill")
    0.93
    """

    key: str = "name"
    threshold: Mapping[str, float] = field(default_factory=dict[str, float])
    other: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise SettingError(f"Dedup(key) must be the name of an attribute or dict key, not {self.key!r}")
        for name, ratio in self.threshold.items():
            _check_ratio(ratio, f"Dedup(threshold[{name!r}])")
        if self.other is not None:
            _check_ratio(self.other, "Dedup(other)")

    def ratio(self, kind: str) -> float | None:
        """Returns the ratio from which on two names of a type are similar; None: they must be equal.

        Args:
            kind: The type of the items.
        """
        return self.threshold.get(kind, self.other)


@dataclass(frozen=True)
class BatchPolicy:
    """How batches of a task are made: ``@app.task(batch=BatchPolicy(…))``. A call passes data only.

    Args:
        split: The sizes of the parts: a `SizeTable`, or a function of type and count. Needed for ``count=``.
        dedup: Which items are the same; None: all items are kept.
        validate: Returns whether an item is good; a string is the reason why it is not.
        top_up: How many further parts may replace items that were refused or whose part failed.
        over: A further part asks for this multiple of the missing items.
        at_once: How many parts live at a time; None: all.
        fallback: A task with the same parameters that makes all items in one call, while the task is degraded.

    >>> BatchPolicy(split=SizeTable({}, other=20), dedup=Dedup(), top_up=1).over
    1.5
    """

    split: Split | None = None
    dedup: Dedup | None = None
    validate: Callable[[Any], bool | str] | None = None
    top_up: int = 2
    over: float = 1.5
    at_once: int | None = None
    fallback: Enqueuer[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in ("split", "validate"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise SettingError(f"BatchPolicy({name}) must be a function, not {getattr(self, name)!r}")
            if inspect.iscoroutinefunction(getattr(self, name)):
                raise SettingError(f"BatchPolicy({name}) must be a plain function, not an `async def`")
        if self.dedup is not None and not isinstance(self.dedup, Dedup):
            raise SettingError(f"BatchPolicy(dedup) must be a Dedup(…), not {self.dedup!r}")
        parse_bound(self.top_up, "BatchPolicy(top_up)", least=0)
        if not isinstance(self.over, int | float) or not isfinite(self.over) or self.over < 1:
            raise SettingError(f"BatchPolicy(over) must be a number from 1, not {self.over!r}")
        if self.at_once is not None:
            parse_bound(self.at_once, "BatchPolicy(at_once)")

    def sizes(self, task: str, kind: str, count: int) -> tuple[int, ...]:
        """The sizes of the parts of `count` items. task: for errors."""
        if self.split is None:
            raise InvalidOption(f"{task}: a count needs a split: @app.task(batch=BatchPolicy(split=SizeTable(…)))")
        found = self.split(kind, count)
        if not isinstance(found, Sequence):
            raise InvalidOption(f"{task}: split({kind!r}, {count}) must return a list of sizes, not {found!r}")
        sizes = tuple(found)
        for size in sizes:
            parse_bound(size, f"{task}: a size of split({kind!r}, {count})")
        if sum(sizes) != count:
            raise InvalidOption(f"{task}: the sizes of split({kind!r}, {count}) have the sum {sum(sizes)}: {sizes!r}")
        return check_parts(task, sizes)


def check_parts(task: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if len(sizes) > MAX_PARTS:
        raise InvalidOption(f"{task}: a batch has at most {MAX_PARTS:,} parts, not {len(sizes):,}; make them larger")
    return sizes


def _check_ratio(value: object, what: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise SettingError(f"{what} must be above 0 and at most 1, not {value!r}")
