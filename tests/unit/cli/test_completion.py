"""``onthedot completion``, and what a shell is offered."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from onthedot.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_a_shell_is_printed(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_ONTHEDOT_COMPLETE={shell}_complete" in result.stdout
    assert CliRunner().invoke(main, ["completion"], env={"SHELL": f"/bin/{shell}"}).stdout == result.stdout


def test_unknown_shell_is_refused() -> None:
    result = CliRunner().invoke(main, ["completion"], env={"SHELL": "/bin/tcsh"})
    assert (result.exit_code, result.stderr) == (2, "onthedot: which shell? Name one: bash, fish, zsh\n")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ta", ["task"]),
        ("task ", ["cancel", "explain", "list", "retry", "show"]),
        ("task l", ["list"]),
        ("worker l", ["list", "l"]),
        ("worker --proc", ["--processes"]),
        ("task list --stat", ["--state"]),
        ("task list --state f", ["failed"]),
    ],
)
def test_shell_is_offered_commands_and_options(typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    env = {"_ONTHEDOT_COMPLETE": "bash_complete", "COMP_WORDS": f"onthedot {typed}", "COMP_CWORD": str(len(words))}
    result = CliRunner().invoke(main, [], prog_name="onthedot", env=env)
    assert [line.partition(",")[2] for line in result.stdout.splitlines()] == offered
