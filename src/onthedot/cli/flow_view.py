"""A flow as lines of text: what waits for what, its handlers, and what its tasks have added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onthedot.cli.output import visible
from onthedot.cli.table import cut
from onthedot.observability.log_format import clean
from onthedot.operations.flow_list import FlowDetails
from onthedot.operations.flow_stages import FlowStage
from onthedot.operations.humanize import plural, short_id

_MAX_DEPTH = 20  # stages below each other
_MAX_LINES = 200
_MAX_REMARK = 160  # characters


def flow_lines(details: FlowDetails) -> Iterator[str]:
    """The last task, and below each task those that it waits for; then handlers and what was added."""
    yield from _tree(details)
    for handler in details.handlers:
        yield _line(f"{handler.kind}: ", handler.source, handler.uuid, handler.state, handler.remark)
    for children in details.children:
        if children.by is None:
            yield "spawned: " + _tasks(children.source, children.count, children.states, children.uuid, children.remark)


def _tree(details: FlowDetails) -> Iterator[str]:
    stages = details.stages
    shown: set[int] = set()
    stack = [(len(stages) - 1, "", "")]  # number, what comes before its line, and before the lines below it
    while stack:
        number, lead, below = stack.pop()
        if len(shown) == _MAX_LINES or len(below) > 3 * _MAX_DEPTH:
            left = sum(stage.count for stage in stages if stage.number not in shown)
            yield f"{lead}… {plural(left, 'more task')}: --tasks lists them, --json has all stages"
            return
        stage = stages[number]
        text = _stage(stage)
        if number in shown:
            yield f"{lead}{text} (see above)"
            continue
        shown.add(number)
        yield lead + text
        children = _children(details, stage)
        for index, child in enumerate(children, 1):
            is_last = index == len(children) and not stage.after
            yield f"{below}{'└─ ' if is_last else '├─ '}{child}"
        for each in reversed(stage.after):
            is_last = each == stage.after[-1]
            stack.append((each, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")))


def _children(details: FlowDetails, stage: FlowStage) -> list[str]:
    return [
        "runs " + _tasks(each.source, each.count, each.states, each.uuid, each.remark)
        for each in details.children
        if each.by == stage.uuid
    ]


def _stage(stage: FlowStage) -> str:
    return _tasks(stage.source, stage.count, stage.states, stage.uuid, stage.remark)


def _tasks(source: str, count: int, states: Mapping[str, int], uuid: str, remark: str) -> str:
    if count == 1:
        (state,) = states
        return _line("", source, uuid, state, remark)
    return f"{clean(source)} × {count:,}: {states_text(states)}"


def _line(lead: str, source: str, uuid: str, state: str, remark: str) -> str:
    text = f"{lead}{clean(source)} {short_id(uuid)} {state}"
    return f"{text}: {cut(visible(remark), _MAX_REMARK)}" if remark else text


def states_text(states: Mapping[str, int]) -> str:
    """
    >>> states_text({"succeeded": 2, "failed": 1})
    '1 failed, 2 succeeded'
    """
    return ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
