"""The results of predecessors together, and the saved steps of a task, take up to 64 MiB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onthedot import App, TaskFailed, current_task, group

PART = "x" * (1_000_000)
TOO_MANY = 68  # of these parts are more than 64 MiB
PATIENCE = 120


@pytest.fixture
def app() -> Iterator[App]:
    """On the store without a limit of its own: the bounds are the engine's."""
    app = App("shop", store="memory://", stop_timeout=0)
    yield app
    app.shutdown()


def test_results_above_the_bound_fail_their_follower_and_name_the_alternative(app: App) -> None:
    @app.task
    async def make(number: int) -> str:
        return PART

    @app.task
    async def join(parts: list[str]) -> int:
        return sum(map(len, parts))

    @app.task
    async def read() -> int:
        sizes = [len(str(part)) async for part in current_task().results()]
        return sum(sizes)

    members = group(make.s(number) for number in range(TOO_MANY))
    with app.background():
        handle = (members | join).delay()
        named = r"the results of its 68 predecessors take more than 64 MiB; let it follow them with \.after\(group\)"
        with pytest.raises(TaskFailed, match=named):
            handle.result(timeout=PATIENCE)
        assert handle.info().attempt == 1, "it is not retried"
        fits = group(make.s(number) for number in range(60))
        assert (fits | join).delay().result(timeout=PATIENCE) == 60 * len(PART)
        assert read.s().after(members).delay().result(timeout=PATIENCE) == TOO_MANY * len(PART)


def test_saved_steps_above_the_bound_fail_their_task(app: App) -> None:
    begun: list[int] = []

    @app.task(max_retries=3)
    async def collect() -> None:
        for number in range(TOO_MANY):
            begun.append(number)
            await current_task().step(f"part {number}", make)

    async def make() -> str:
        return PART

    with app.background():
        handle = collect.delay()
        named = "step 'part 67#1': the saved steps of the task take more than 67,108,864 bytes; keep large results"
        with pytest.raises(TaskFailed, match=named):
            handle.result(timeout=PATIENCE)
    assert begun == list(range(TOO_MANY)), "it is not retried, because the effects of its steps have happened"
