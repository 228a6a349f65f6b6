"""The apps of TASKS by alias: ``onthedot worker onthedot.integrations.django.worker_app:default``.

``manage.py onthedot`` passes this name. DJANGO_SETTINGS_MODULE must be set.
"""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from typing import Any

import django

from onthedot.api.app import App

django.setup()

from onthedot.integrations.django import get_worker_app  # noqa: E402 - tasks need the apps
from onthedot.integrations.django.framework import configured  # noqa: E402


def __getattr__(alias: str) -> App[Any]:
    if alias.startswith("_") or alias not in configured.settings:
        raise AttributeError(alias)
    return get_worker_app(alias)
