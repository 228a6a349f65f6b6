"""Tasks that run on time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onthedot.api import *  # noqa: F403 - its __all__ says which
    from onthedot.api import __all__ as __all__
else:
    # At the first use, not at the import: pytest loads our plugin for everybody who has the package installed.
    def __getattr__(name: str) -> object:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'onthedot' has no attribute {name!r}")
        from importlib import import_module

        names = import_module("onthedot.api")
        globals().update({each: getattr(names, each) for each in ("__all__", *names.__all__)})
        if name not in globals():
            raise AttributeError(f"module 'onthedot' has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
