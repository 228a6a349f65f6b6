"""De-duplication: exact keys, similar names, and refusals by reason."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from difflib import SequenceMatcher
from typing import Any, NamedTuple, cast

from onthedot.batches.policy import BatchPolicy, Dedup

MAX_SIMILAR = 2000  # accepted names among which similar ones are looked for

NO_NAME = "no name"
DUPLICATE = "duplicate"
SIMILAR = "similar"
SURPLUS = "surplus"
INVALID = "invalid"

_ROUNDING = 1e-9  # 1 - 0.07 is below 0.93
_SPACES = re.compile(r"\s+")


class Selection(NamedTuple):
    """The items of a part that are kept, and how many were refused, by reason.

    error: that `validate` has raised for an item
    """

    items: list[Any]
    refused: dict[str, int]
    error: Exception | None = None


def normalized(name: str) -> str:
    """The key by which names are compared.

    >>> normalized("  Ａnn\\u00a0 LEE ")
    'ann lee'
    """
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", name)).strip().casefold()


def name_of(item: object, key: str) -> str | None:
    """The name of an item; None: it has none."""
    found: object = item
    if isinstance(item, Mapping):
        found = cast("Mapping[str, object]", item).get(key)
    elif not isinstance(item, str):
        found = getattr(item, key, None)
    return found if isinstance(found, str) and normalized(found) else None


class Selector:
    """Takes the items of a batch part by part and refuses those that are invalid, the same or too many.

    kind: type of the items
    count: how many items the batch has; None: any number
    warn: called for an item that `validate` cannot judge, and once if there are too many names to look for similar ones
    """

    def __init__(self, policy: BatchPolicy, kind: str, count: int | None, warn: Callable[[str], object]) -> None:
        self._validate = policy.validate
        self._dedup = policy.dedup
        self._count = count
        self._warn = warn
        self._warned = False
        self._accepted = 0
        self._error: Exception | None = None
        self._names = NameIndex(None if policy.dedup is None else policy.dedup.ratio(kind))

    @property
    def accepted(self) -> int:
        """How many items are kept."""
        return self._accepted

    def add_existing(self, names: Iterable[str]) -> None:
        """Names that no item of the batch may have."""
        for name in names:
            self._names.add(normalized(name))

    def add_accepted(self, items: Sequence[object]) -> None:
        """Items that an earlier run has kept."""
        self._accepted += len(items)
        if self._dedup is not None:
            self.add_existing(existing_names(items, self._dedup))

    def copy(self) -> Selector:
        """Takes the same items from here on; what it takes is not known to this one."""
        other = copy(self)
        other._names = self._names.copy()
        return other

    def comparisons(self, items: Sequence[object]) -> int:
        """How many pairs of names `select` may compare: with those that are accepted, and with each other."""
        return self._names.pairs_with(len(items))

    def select(self, items: Sequence[object]) -> Selection:
        kept: list[Any] = []
        refused: Counter[str] = Counter()
        self._error = None
        for item in items:
            reason = self._refusal(item)
            if reason:
                refused[reason] += 1
            else:
                kept.append(item)
                self._accepted += 1
        return Selection(kept, dict(refused), self._error)

    def _refusal(self, item: object) -> str:
        """Why an item is not kept; "": it is."""
        if self._count is not None and self._accepted >= self._count:
            return SURPLUS
        if self._validate is not None:
            verdict = self._checked(item)
            if isinstance(verdict, str):
                return verdict or INVALID
            if not verdict:
                return INVALID
        if self._dedup is None:
            return ""
        name = name_of(item, self._dedup.key)
        if name is None:
            return NO_NAME
        key = normalized(name)
        if key in self._names:
            return DUPLICATE
        if self._names.is_full and not self._warned:
            self._warned = True
            self._warn(f"more than {MAX_SIMILAR:,} names: only equal ones are refused from here on, not similar ones")
        if self._names.has_similar(key):
            return SIMILAR
        self._names.add(key)
        return ""

    def _checked(self, item: object) -> bool | str:
        """An item for which `validate` raises is refused: it does not cost the other items of the batch."""
        assert self._validate is not None
        try:
            return self._validate(item)
        except Exception as error:  # noqa: BLE001 - code of the user
            if self._error is None:
                self._warn(f"validate raised {type(error).__name__}: {error}; such items are refused as invalid")
            self._error = error
            return False


class NameIndex:
    """The accepted names. ratio: from which on two names are similar; None: they must be equal."""

    def __init__(self, ratio: float | None) -> None:
        self._ratio = ratio
        self._keys: dict[str, None] = {}  # in order
        self._is_similar = _similarity()

    def copy(self) -> NameIndex:
        other = copy(self)
        other._keys = self._keys.copy()
        return other

    def add(self, key: str) -> None:
        self._keys[key] = None

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    @property
    def is_full(self) -> bool:
        """Similar names are no longer looked for."""
        return self._ratio is not None and len(self._keys) > MAX_SIMILAR

    def pairs_with(self, number: int) -> int:
        """How many pairs are compared if this number of names is added."""
        if self._ratio is None or self.is_full:
            return 0
        number = min(number, MAX_SIMILAR)
        return number * (len(self._keys) + number // 2)

    def has_similar(self, key: str) -> bool:
        ratio = self._ratio
        if ratio is None or self.is_full:
            return False
        return any(self._is_similar(key, other, ratio) for other in self._keys)


def existing_names(existing: Iterable[object], dedup: Dedup) -> list[str]:
    """The names of items, or names as they are; without those that have none."""
    names = (name_of(item, dedup.key) for item in existing)
    return [name for name in names if name is not None]


def _similarity() -> Callable[[str, str, float], bool]:
    try:
        from rapidfuzz.fuzz import ratio as percent
    except ImportError:
        return similar_by_difflib

    def similar(first: str, second: str, ratio: float) -> bool:
        return percent(first, second) / 100 >= ratio - _ROUNDING

    return similar


def similar_by_difflib(first: str, second: str, ratio: float) -> bool:
    """
    >>> similar_by_difflib("anna lee", "anna leeh", 0.9), similar_by_difflib("anna lee", "bob", 0.9)
    (True, False)
    """
    ratio -= _ROUNDING
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    # The first two are upper bounds, and much cheaper.
    return matcher.real_quick_ratio() >= ratio and matcher.quick_ratio() >= ratio and matcher.ratio() >= ratio
