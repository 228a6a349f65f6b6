"""Each marked line is an error for mypy --strict and for pyright (test_typing.py compares the lines)."""

from __future__ import annotations

from onthedot import App, TaskFailure, current_task, group

app = App("flows")


@app.task
async def extract(day: str) -> list[int]:
    return [1]


@app.task
def clean(rows: list[int]) -> list[int]:
    return rows


@app.task
async def takes_int(number: int) -> int:
    return number


@app.task
async def score(rows: list[int], model: str) -> float:
    return 1.0


@app.task
async def merge(rows: list[list[int]]) -> str:
    return ""


@app.task
async def nop() -> None: ...


@app.task
async def alert(failure: TaskFailure) -> None: ...


raw = extract.s("mon")
raw | takes_int  # E wrong type
raw | score  # E missing second argument
raw | nop  # E takes none
raw | print  # E no task
clean.s(takes_int.s(1).result)  # E wrong type of a result
raw.then(score)  # E missing argument
raw.then(score, model=1)  # E wrong type of a further argument
group(extract.s(day) for day in "ab") | clean  # E a list of lists
group([extract.s("a")], on_error="ignore")  # E unknown on_error
group((extract.s(day) for day in "ab"), on_error="collect") | merge  # E failures are not expected
raw.on_failure(clean)  # E takes no TaskFailure
raw.always(alert)  # E a function, not a call
raw.delay("nightly")  # E uuid by name


async def parent() -> None:
    ctx = current_task()
    await ctx.run(extract)  # E a function, not a call
    await ctx.run(raw.delay())  # E a handle
    ctx.run(raw)  # E never awaited
    number: int = await ctx.run(raw)  # E wrong type of the result
    print(number, ctx.sync.run(raw) + 1)  # E wrong type of the result
