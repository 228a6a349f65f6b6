"""User code in a process that was started to run its tasks.

It is imported under a mark: nothing may be started or stored by that. ``start(auto=True)`` does nothing there, and the
first call that *acts* (adds, looks, blocks) ends the import without a word: what was declared so far is known.
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

_PATIENCE = 2.0  # seconds a script may go on after start() without declaring anything


class StopImport(BaseException):
    """Ends the import of a script, whatever it catches."""


class ImportState:
    """How far the import of a script has come."""

    marked: bool = False
    loaded: bool = False  # the script was run, or is
    started: bool = False  # a start() in the background was passed
    ended: str = ""  # "file:line" of the call that ended it


def calling_module() -> str:
    """The module of the code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "onthedot":
        frame = frame.f_back
    return module_name(frame.f_globals.get("__name__"))


def current_location() -> CodeLocation:
    """This process's code, as multiprocessing would hand it over."""
    main = sys.modules["__main__"]
    name: str | None = getattr(main.__spec__, "name", None)
    file: str | None = getattr(main, "__file__", None)
    if name is not None and (name == "__main__" or name.endswith(".__main__")):
        name = file = None  # a package that was run: its __main__ is its command line, and rarely guarded
    elif name is not None or (file is not None and (Path(file).stem == "ipython" or not Path(file).is_file())):
        file = None
    where = None if file is None else str(Path(file).absolute())
    return CodeLocation([os.fspath(each) for each in sys.path], list(sys.argv), str(Path.cwd()), name, where)


def enter_location(code: CodeLocation) -> None:
    """Makes this process look for modules and files where the other one does."""
    sys.path[:] = code.path
    sys.argv[:] = code.argv
    os.chdir(code.cwd)


def load_modules(names: Iterable[str]) -> None:
    for name in names:
        with _mark():
            importlib.import_module(name)


def load_script(code: CodeLocation) -> None:
    """Runs the main script under another name, once. Without one, nothing happens."""
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
        module.__file__, module.__package__, module.__spec__ = compiled.co_filename, spec.parent, spec
        return module, compiled
    assert code.file is not None
    module.__file__ = code.file
    return module, compile(Path(code.file).read_bytes(), code.file, "exec", dont_inherit=True)


# -- the mark


def forbid_during_import() -> None:
    """Whoever starts, stores or waits calls this first."""
    if ImportState.marked:
        # A thread of the script's own ends without a word too.
        raise StopImport if threading.current_thread() is threading.main_thread() else SystemExit


def extend_import_deadline(*, started: bool = False) -> None:
    """Under the mark a start in the background was passed, or something is declared: there may be more to come.

    But not for ever: what follows a start is often a loop that sleeps, and it would never end here.
    """
    if ImportState.marked:
        ImportState.started = ImportState.started or started
        if ImportState.started and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)


@contextmanager
def _mark() -> Generator[None, None, None]:
    before = signal.signal(signal.SIGALRM, _alarmed) if hasattr(signal, "setitimer") else None
    ImportState.marked = True
    try:
        yield
    except StopImport as end:
        own = [frame for frame in traceback.extract_tb(end.__traceback__) if not _ours(frame.filename)]
        ImportState.ended = f"{own[0].filename}:{own[0].lineno}" if own else ""
    finally:
        ImportState.marked = False
        if before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _alarmed(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    forbid_during_import()


def _ours(file: str) -> bool:
    return file.startswith((str(Path(__file__).parents[1]), "<frozen"))
