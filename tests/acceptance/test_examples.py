"""Each program of `examples` runs as its docstring says, and prints what is expected."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from onthedot.executors.processes import fork_server
from tests.support.waits import SOON

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups"),
    pytest.mark.usefixtures("nothing_stays"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDS_BY_SIGNAL = "blocking"
FAILURES = ("chain_and_chord", "delayed_messages", "streamed_answer", "webhooks")
"""They let tasks fail, which is logged."""
PRINTED = {
    "approval": ["small: 50 to ann", "stored: True False", "large: 500 to bob", "other: refused by joe"],
    "background_thread": ["the program goes on: 2", "beat"],
    "batch_progress": [
        "first: ['old Ada Lind', 'old Bo Lind', 'old Cleo Lind', 'old Dag Lind']",
        "part 2: 3 kept, refused {'duplicate': 1}",
        "part 3: 1 kept, refused {'duplicate': 1}",
        "part 4: 2 kept, refused {'duplicate': 1}",
        "all: 10 names, 0 missing",
        "the same key is the same batch: True",
        "degraded: 10 names in 1 part",
        "frozen: try again in 30 s",
    ],
    "chain_and_chord": [
        "chain: 12",
        "chord: 8",
        "graph: 3 and 6",
        "failed: KeyError 'plum'",
        "runs again: 2",
        "retried: 10 FlowProgress(done=3, failed=0, total=3)",
    ],
    "customers": [
        "exported {'acme': 10, 'globex': 10} at most {'acme': 2, 'globex': 2} at once",
        "added [True, False, False]",
        "acme refreshed: new name",
    ],
    "delayed_messages": [
        "order 1",
        "order 2",
        "order 3",
        "the same message: True",
        "dead letter: ann after 2 attempts",
    ],
    "durable_order": [
        "waiting waiting",
        "scheduled succeeded lost",
        "reviewed",
        "['charge 30', 'ship 100', 'charge 50', 'ship 200', 'mail: where is DHL-7?', 'mail: did you like it?']",
    ],
    "only_on_schedule": ["tick", "has delay(): False"],
    "orders": ["order 2 is not in stock", "order 1: paid", "orders: [(1, 1)]", "tasks: ['pay-1']"],
    "process_mode": ["primes: 1229", "primes: 9592", "primes: 78498", "in another process: True"],
    "reminders": [
        "Thu 01 Jan",
        "Tue 13 Jan ['newsletter', 'newsletter']",
        "Thu 15 Jan ['newsletter', 'newsletter', 'ann, your trial ends tomorrow']",
    ],
    "shared_scheduler": ["hello ann", "hello bob", "tick", "failed: greet, ValueError: nobody to greet"],
    "streamed_answer": [
        "onthedot: a task that is on time ",
        "event: item, data: on",
        "event: item, data: time",
        "event: end, data: succeeded",
        "words: 7 7",
    ],
    "webhooks": [
        "http://example.org: http://example.org is not safe to call, after 1 attempts",
        "https://example.org: no answer, after 3 attempts",
        "https://example.org called, attempt 4",
    ],
}


def test_every_example_is_run() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*PRINTED, ENDS_BY_SIGNAL}
    assert len(names) == 15


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_example_prints_and_ends_by_itself(name: str) -> None:
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py"],
            cwd=folder, capture_output=True, text=True, timeout=2 * SOON, check=True,
        )  # fmt: skip
        assert list(Path(folder).iterdir()) == []
    assert name in FAILURES or done.stderr == ""
    printed = done.stdout.splitlines()
    assert [line for line in PRINTED[name] if line not in printed] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_blocking_example_returns_after_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, EXAMPLES / f"{ENDS_BY_SIGNAL}.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "tick\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=SOON)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "bye"
    assert err == ""
