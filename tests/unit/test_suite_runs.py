"""`./dev test`: how many pytest runs share the machine, which run alone, and what is printed at the end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.suite import MOST, Run, Suite, run_alone, runs_side_by_side

TESTS = """
import pytest

def test_good(): ...

@pytest.mark.parametrize("number", [1, 2])
def test_bad(number):
    assert number == 1

@pytest.mark.timed
def test_timed(): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of its own, so that pytest does not read ours."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    timed\n    slow\naddopts = -p no:valkey\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "runs").mkdir()
    return tmp_path


def suite_of(folder: Path) -> Suite:
    return Suite(["-c", str(folder / "pytest.ini"), "-q", str(folder / "test_some.py")], folder / "runs")


def test_summary_has_the_counts_of_every_run_and_the_failed_tests(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = suite_of(folder)
    suite.perform([Run("others", sys.prefix, "not timed")])
    suite.perform([Run("alone", sys.prefix, "timed")])
    suite.perform([Run("nothing", sys.prefix, "timed and slow")])  # later: runs are listed as they end
    capsys.readouterr()
    suite.print_summary()
    lines = [line.rpartition(", ")[0] or line for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "",
        "Runs:",
        "  FAILED others: 2 passed, 1 failed, 0 skipped",
        "  ok     alone: 1 passed, 0 failed, 0 skipped",
        "  ok     nothing: 0 passed, 0 failed, 0 skipped",
        "",
        "Failed tests:",
        "  test_some.py::test_bad[2] (others)",
    ]
    assert [ended.is_good for ended in suite.ended] == [False, True, True]


def test_run_that_dies_is_a_failure_without_a_report(folder: Path) -> None:
    (folder / "test_some.py").write_text("import os\n\ndef test_dies():\n    os._exit(7)\n")
    suite = suite_of(folder)
    suite.perform([Run("dies", sys.prefix, "not timed")])
    (ended,) = suite.ended
    assert not ended.is_good
    assert ended.summary().startswith("FAILED dies: no report, exit code 7, ")


def test_each_test_is_in_one_run_of_the_default_python_and_timed_ones_run_alone() -> None:
    beside = runs_side_by_side([".venv", ".dev/python3.13"])
    assert [run.marks for run in run_alone([".venv"])] == ["timed"]
    assert all(run.marks.startswith("not timed and ") for run in beside)
    assert [run.environment for run in beside].count(".dev/python3.13") == 1
    for once, fault, search in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1)):
        marks = {"once": bool(once), "fault": bool(fault), "search": bool(search), "timed": False}
        chosen = [run.name for run in beside if run.environment == ".venv" and eval(run.marks, {}, marks)]
        assert len(chosen) == 1, (marks, chosen)


def test_at_most_three_runs_share_the_machine(folder: Path) -> None:
    """Each run notes when it begins and ends."""
    log = folder / "log"
    (folder / "test_some.py").write_text(
        "import os, time\n\ndef test_one():\n"
        f"    with open({str(log)!r}, 'a') as log:\n        log.write('+')\n"
        "    time.sleep(0.5)\n"
        f"    with open({str(log)!r}, 'a') as log:\n        log.write('-')\n"
    )
    suite = suite_of(folder)
    suite.perform([Run(str(number), sys.prefix, "not timed") for number in range(5)])
    running = 0
    most = 0
    for sign in log.read_text():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert len(suite.ended) == 5
    assert 1 < most <= MOST == 3
