"""Runs a command and fails if it leaves a process, a listening port or a temporary file behind.

    python3 tests/support/leak_check.py ./dev demo

Other programs of the machine start and end meanwhile, so comparing before and after would blame the wrong ones. On
Linux orphans become children of this process ("subreaper"): every descendant that is left after the command ended was
started by it. Temporary files go to a new folder that must be empty again; in the shared folder only new names with our
prefix count.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE = 2.0  # seconds for a process that is about to end
OURS = "onthedot"  # prefix of hard-coded paths


def main(command: list[str]) -> int:
    if not command:
        sys.exit(__doc__)
    adopt_orphans()
    shared = Path(tempfile.gettempdir())
    before_ports = listening()
    before_files = set(shared.iterdir())
    private = Path(tempfile.mkdtemp(prefix="leaves-"))
    private.chmod(0o711)  # a test acts as another user in a folder below
    try:
        status = subprocess.run(command, env={**os.environ, "TMPDIR": str(private)}, check=False).returncode
        left = [f"process {pid}: {name}" for pid, name in wait_for_children().items()]
        left += [f"port {port}" for port in sorted(listening() - before_ports) if not held_by_another_program(port)]
        left += [f"file {path}" for path in sorted(private.rglob("*"))]
        left += [f"file {path}" for path in set(shared.iterdir()) - before_files if path.name.startswith(OURS)]
    finally:
        for pid in descendants(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(private, ignore_errors=True)
    for line in left:
        print(f"left behind by {' '.join(command)}: {line}", file=sys.stderr)
    return status or bool(left)


def adopt_orphans() -> None:
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("leak_check: cannot adopt orphans")


def wait_for_children() -> dict[int, str]:
    deadline = time.monotonic() + GRACE
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        reap()
        time.sleep(0.02)
    return left


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def descendants(root: int) -> dict[int, str]:
    """Pid and command line of all live descendants of a process."""
    ps = subprocess.run(["ps", "-wwAo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True)
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for line in ps.stdout.splitlines():
        pid, parent, state, name = line.split(None, 3)
        if not state.startswith("Z") and not name.startswith("ps -wwAo pid="):
            children.setdefault(int(parent), []).append(int(pid))
            names[int(pid)] = name
    below = [root]
    found: dict[int, str] = {}
    while below:
        for pid in children.get(below.pop(), []):
            found[pid] = names[pid]
            below.append(pid)
    return found


def sockets() -> dict[int, set[str]]:
    """Listening TCP ports and the inodes of their sockets."""
    found: dict[int, set[str]] = {}
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == "0A":  # LISTEN
                found.setdefault(int(fields[1].rpartition(":")[2], 16), set()).add(fields[9])
    return found


def listening() -> set[int]:
    return set(sockets())


def held_by_another_program(port: int) -> bool:
    """Whether a live process outside of this tree has it open: then it does not belong to the command."""
    links = {f"socket:[{inode}]" for inode in sockets().get(port, ())}
    ours = descendants(os.getpid())
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(fd.readlink()) in links and int(fd.parts[2]) not in ours:
                return True
        except OSError:  # it has ended, or may not be read
            continue
    return not links


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
