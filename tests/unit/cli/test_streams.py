"""Streams in ``onthedot task show`` and in lists of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.unit.cli.conftest import Console


def test_task_show_has_the_number_of_saved_items(console: Console) -> None:
    @console.app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    with console.app.background():
        stream = numbers.delay(1500)
        assert len(stream.result(timeout=10)) == 1500
        info = stream.info()
        assert (info.result, info.result_status) == (None, "streamed")
    shown = console.json("task", "show", stream.uuid)
    assert (shown["items"], shown["result"], shown["result_status"]) == (1500, None, "streamed")
    text = console.do("task", "show", stream.uuid)
    assert "1,500 saved" in text
    assert "result:" not in text
    assert [each.result_status for each in console.app.sync.find(source="numbers")] == ["streamed"]
