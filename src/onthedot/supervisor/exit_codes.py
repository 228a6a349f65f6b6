"""Exit codes of commands and worker processes, and the error that carries one."""

from __future__ import annotations

from onthedot.errors import ArgumentError, DeclarationError, OnTheDotError, StoreError

FAILED = 1  # or the answer is no
USAGE = 2
STORE = 3
ADDRESS = 4  # a port is taken, or a host is not of this machine
TIMEOUT = 124  # as timeout(1)
INTERRUPTED = 130  # as a shell reports the end by Ctrl+C

CODE_NAMES: dict[int, str] = {
    FAILED: "failed", USAGE: "usage", STORE: "store", ADDRESS: "address", TIMEOUT: "timeout",
    INTERRUPTED: "interrupted",
}  # fmt: skip


class CommandError(OnTheDotError):
    """A command or a worker process cannot go on, and a person can fix the cause. The message is one line.

    uuid: the task that it is about, for --json.
    """

    def __init__(self, message: str, exit_code: int = USAGE, uuid: str | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.uuid = uuid


def exit_code_for(error: OnTheDotError) -> int:
    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, StoreError):
        return STORE
    if isinstance(error, DeclarationError | ArgumentError):
        return USAGE
    return FAILED
