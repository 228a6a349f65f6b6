"""The HTTP API and the page of an app: ``web_app`` makes an ASGI app of its operations.

It needs starlette: ``pip install 'onthedot[web]'``.
"""

try:
    from onthedot.web.application import web_app as web_app
except ImportError as _error:
    if (_error.name or "").partition(".")[0] != "starlette":
        raise
    raise ImportError("onthedot.web needs starlette: pip install 'onthedot[web]'") from _error

__all__ = ["web_app"]
