"""Imports user code in a process that was started to run its tasks.

The import must have no side effects, so it happens under a mark: ``start(auto=True)`` does nothing, and the first call
that adds, reads or blocks ends the import silently. Tasks that were declared before it are known.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.abc import InspectLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType

from onthedot.definitions.sources import SCRIPT_MODULE, module_name
from onthedot.executors.processes.messages import CodeLocation

_OWN_FRAMES = (str(Path(__file__).parents[1]), "<frozen")
_TIMEOUT = 2.0  # seconds that a script may run after start() without declaring a task


class StopImport(BaseException):
    """Ends the import of a script; a BaseException, so that the script does not catch it."""


class ImportState:
    """The progress of the import of a script."""

    marked: bool = False  # an import is in progress
    loaded: bool = False  # the script has run or is running
    started: bool = False  # the script has called start() for the background
    ended: str = ""  # "file:line" of the call that ended the import


def calling_module() -> str:
    """The module of the code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "onthedot":
        frame = frame.f_back
    return module_name(frame.f_globals.get("__name__"))


def current_location() -> CodeLocation:
    """Where the code of this process is, as multiprocessing describes it."""
    main = sys.modules["__main__"]
    name: str | None = getattr(main.__spec__, "name", None)
    file: str | None = getattr(main, "__file__", None)
    if name is not None and (name == "__main__" or name.endswith(".__main__")):
        name = file = None  # `python -m package`: its __main__ is a command line, rarely guarded
    elif name is not None or (file is not None and (Path(file).stem == "ipython" or not Path(file).is_file())):
        file = None
    if file is not None:
        file = str(Path(file).absolute())
    return CodeLocation([os.fspath(each) for each in sys.path], list(sys.argv), str(Path.cwd()), name, file)


def enter_location(code: CodeLocation) -> None:
    """Makes this process find modules and files where the other one does."""
    sys.path[:] = code.path
    sys.argv[:] = code.argv
    os.chdir(code.cwd)


def load_modules(names: Iterable[str]) -> None:
    for name in names:
        with _mark():
            importlib.import_module(name)


def load_script(code: CodeLocation) -> None:
    """Runs the main script under another name, once; does nothing without a script."""
    if ImportState.loaded or not code.has_script:
        return
    ImportState.loaded = True
    module, compiled = _script(code)
    sys.modules["__main__"] = sys.modules[SCRIPT_MODULE] = module
    with _mark():
        exec(compiled, module.__dict__)  # noqa: S102 - the user's own script


def _script(code: CodeLocation) -> tuple[ModuleType, CodeType]:
    module = ModuleType(SCRIPT_MODULE)
    if code.name is not None:
        spec = importlib.util.find_spec(code.name)
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ImportError(f"the main module {code.name!r} cannot be found again")
        compiled = spec.loader.get_code(code.name)
        assert compiled is not None
        module.__file__ = compiled.co_filename
        module.__package__ = spec.parent
        module.__spec__ = spec
        return module, compiled
    assert code.file is not None
    module.__file__ = code.file
    return module, compile(Path(code.file).read_bytes(), code.file, "exec", dont_inherit=True)


# -- the mark


def forbid_during_import() -> None:
    """Ends the import, if there is one. Called before anything starts, stores or waits."""
    if not ImportState.marked:
        return
    if threading.current_thread() is threading.main_thread():
        raise StopImport
    raise SystemExit  # ends a thread of the script silently


def extend_import_deadline(*, started: bool = False) -> None:
    """Gives an import that has called start() or declared a task more time, as more declarations may follow.

    The time is limited: a script often sleeps in a loop after start(), which would never end.
    """
    if ImportState.marked:
        ImportState.started = ImportState.started or started
        if ImportState.started and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _TIMEOUT)


@contextmanager
def _mark() -> Generator[None, None, None]:
    before = None
    if hasattr(signal, "setitimer"):
        before = signal.signal(signal.SIGALRM, _alarmed)
    ImportState.marked = True
    try:
        yield
    except StopImport as end:
        frames = traceback.extract_tb(end.__traceback__)
        lines = (f"{frame.filename}:{frame.lineno}" for frame in frames if not frame.filename.startswith(_OWN_FRAMES))
        ImportState.ended = next(lines, "")
    finally:
        ImportState.marked = False
        if before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _alarmed(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    forbid_during_import()
