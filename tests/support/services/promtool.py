"""Prometheus' own checks of metrics and rules: `promtool`, without a server."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.services.debian import wanted


def metric_problems(text: str) -> str:
    """The output of `promtool check metrics` about a page: problems of its format, names, types and help texts."""
    return _problems("metrics", text)


def rule_problems(path: Path) -> str:
    """The output of `promtool check rules` about a file with an error: expressions are parsed as well."""
    return _problems("rules", "", str(path))


def _problems(kind: str, text: str, *words: str) -> str:
    program = wanted("promtool")
    done = subprocess.run(
        [program.path, "check", kind, *words],
        input=text, env=program.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr
