"""Errors: retried with growing pauses, rejected at once, found and run again.

python examples/webhooks.py
"""

from __future__ import annotations

from onthedot import App, Reject, TaskFailed, current_task

app = App("webhooks", store="memory://")
receiver_is_up = False


@app.task(max_retries=2, backoff=0.05, retry_on=(ConnectionError,))
def call(url: str) -> str:
    if not url.startswith("https://"):
        raise Reject(f"{url} is not safe to call")  # no retry helps
    if not receiver_is_up:
        raise ConnectionError("no answer")
    return f"{url} called, attempt {current_task().attempt}"


def show(url: str) -> None:
    try:
        print(call.delay(url).result(timeout=10))
    except TaskFailed as error:
        print(f"{url}: {error.message}, after {error.attempt} attempts")


if __name__ == "__main__":
    with app.background():
        show("http://example.org")
        show("https://example.org")
        receiver_is_up = True
        failed = app.sync.find(state="failed", error="no answer")
        app.sync.retry(*[task.uuid for task in failed])
        for task in failed:
            print(call.handle(task.uuid).result(timeout=10))
