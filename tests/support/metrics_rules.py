"""Checks a page of metrics by the rules of the text format and of `promtool check metrics`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_SUFFIXES = ("_bucket", "_sum", "_count")
_RESERVED = ("_bucket", "_count", "_sum", "_info", "_created")

Samples = Mapping[tuple[str, tuple[str, ...]], float]


def read_samples(text: str) -> Samples:
    """The samples of a page by name and label values, once the page has passed all checks."""
    check_page(text)
    families = text_string_to_metric_families(text)
    return {(each.name, tuple(each.labels.values())): each.value for family in families for each in family.samples}


def check_page(text: str) -> None:
    problems = list(find_problems(text))
    assert problems == []


def find_problems(text: str) -> Iterator[str]:
    """HELP, TYPE and the samples of a family come together, once; names have the suffix of their type."""
    if not text.endswith("\n"):
        yield "the last line does not end"
    seen: set[str] = set()
    family = ""
    kind = ""
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("# HELP "):
            family, _, help_text = line.removeprefix("# HELP ").partition(" ")
            kind = ""
            if family in seen:
                yield f"{family} comes twice"
            seen.add(family)
            yield from _name_problems(family, help_text)
        elif line.startswith("# TYPE "):
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            if name != family or not before.startswith("# HELP "):
                yield f"TYPE of {name} does not follow its HELP"
            if (kind == "counter") != name.endswith("_total"):
                yield f"{name} is a {kind}"
        else:
            yield from _sample_problems(line, family, kind)
    yield from _value_problems(text)


def _name_problems(family: str, help_text: str) -> Iterator[str]:
    if not _NAME.fullmatch(family):
        yield f"{family} is not a name"
    if family.endswith(_RESERVED):
        yield f"{family} has a reserved suffix"
    if not help_text.endswith("."):
        yield f"{family} has no help text"
    if re.search(r"_(ms|millis|milliseconds|minutes|kb|mb)\b", family):
        yield f"{family} has no base unit"


def _sample_problems(line: str, family: str, kind: str) -> Iterator[str]:
    name = re.split(r"[{ ]", line, maxsplit=1)[0]
    allowed = {family + suffix for suffix in _SUFFIXES} if kind == "histogram" else {family}
    if name not in allowed or not kind:
        yield f"sample {name} is in the family {family} of type {kind or 'none'}"


def _value_problems(text: str) -> Iterator[str]:
    keys: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for family in text_string_to_metric_families(text):
        buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        counts: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            if (sample.name, labels) in keys:
                yield f"{sample.name}{labels} comes twice"
            keys.add((sample.name, labels))
            if math.isnan(sample.value) or (family.type != "gauge" and sample.value < 0):
                yield f"{sample.name}{labels} is {sample.value}"
            others = tuple(label for label in labels if label[0] != "le")
            if sample.name.endswith("_bucket"):
                buckets.setdefault(others, []).append((float(sample.labels["le"]), sample.value))
            elif family.type == "histogram" and sample.name.endswith("_count"):
                counts[others] = sample.value
        for others, found in buckets.items():
            yield from _histogram_problems(family.name, found, counts.get(others))


def _histogram_problems(name: str, buckets: Sequence[tuple[float, float]], count: float | None) -> Iterator[str]:
    if list(buckets) != sorted(buckets) or [value for _, value in buckets] != sorted(value for _, value in buckets):
        yield f"the buckets of {name} are not cumulative"
    if buckets[-1] != (math.inf, count):
        yield f"the last bucket of {name} is not its count"
