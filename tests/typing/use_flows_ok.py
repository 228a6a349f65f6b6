"""Flows that mypy --strict and pyright accept."""

from __future__ import annotations

from typing import Any, assert_type

from onthedot import (
    App,
    AsyncFlowHandle,
    Call,
    FlowHandle,
    FlowProgress,
    Group,
    TaskFailure,
    TaskPage,
    current_task,
    group,
)

app = App("flows")


@app.task
async def extract(day: str, region: str = "") -> list[int]:
    return [1]


@app.task
def clean(rows: list[int]) -> list[int]:
    return rows


@app.task
async def score(rows: list[int], model: str) -> float:
    return 1.0


@app.task
def double(rows: list[int], *, times: int = 2) -> list[int]:
    return rows * times


@app.task
async def merge(rows: list[list[int]]) -> str:
    return ""


@app.task
async def report(rows: list[int], points: float) -> str:
    return ""


@app.task
async def both(pair: tuple[list[int], float]) -> bytes:
    return b""


@app.task
async def survey(rows: list[list[int] | TaskFailure]) -> int:
    return len(rows)


@app.task
async def alert(failure: TaskFailure) -> None: ...


@app.task
async def drop(day: str) -> None: ...


raw = extract.s("mon")
assert_type(raw, Call[list[int]])
assert_type(raw.result, list[int])
assert_type(raw | clean, Call[list[int]])
assert_type(raw | clean | double, Call[list[int]])
assert_type(raw | score.s([1], "m"), Call[float])
assert_type(raw.then(double, times=3), Call[list[int]])
assert_type(raw.then(score, "m1"), Call[float])
assert_type(clean.s(raw.result), Call[list[int]])

days = group(extract.s(day) for day in ("mon", "tue"))
assert_type(days, Group[list[list[int]]])
assert_type(days.result, list[list[int]])
assert_type(days | merge, Call[str])
assert_type(merge.s([raw.result, [1]]), Call[str])
pair = group(extract.s("mon"), score.s([1], "m"))
assert_type(pair, Group[tuple[list[int], float]])
assert_type(pair | both, Call[bytes])
assert_type(group(raw, raw | clean, score.s(raw.result, "m")), Group[tuple[list[int], list[int], float]])
collected = group((extract.s(day) for day in ("mon", "tue")), on_error="collect")
assert_type(collected, Group[list[list[int] | TaskFailure]])
assert_type(collected | survey, Call[int])
last = report.s(clean.s(raw.result).result, score.s(raw.result, model="m").result)
assert_type(last.on_failure(alert).always(drop.s("mon")).after(days), Call[str])
assert_type(last.on_failure(drop.s("mon")), Call[str])
assert_type(last.delay(), FlowHandle[str])
assert_type(last.delay(uuid="nightly").result(timeout=1), str)
assert_type(last.delay().progress(), FlowProgress)
assert_type(app.flow("nightly"), FlowHandle[Any])


async def main() -> None:
    handle = await last.enqueue(uuid="nightly")
    _ = assert_type(handle, AsyncFlowHandle[str])
    assert_type(await handle, str)
    assert_type(await handle.cancel(), int)
    assert_type(await handle.retry(), int)
    assert_type(await handle.tasks(state="failed"), TaskPage)
    assert_type(await (await days.enqueue()), list[list[int]])
    assert_type(current_task().spawn(days | merge), FlowHandle[str])
    assert_type(current_task().sync.run(days | merge), str)
    assert_type(await current_task().run(extract.s("mon")), list[int])
    assert_type(await current_task().run(days), list[list[int]])
    assert_type(await current_task().run(group(raw, last)), tuple[list[int], str])
    assert_type(await current_task().run(group([raw], on_error="collect")), list[list[int] | TaskFailure])
