"""The entry of INSTALLED_APPS."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from typing import Any

from django.apps import AppConfig

_Config: Any = AppConfig


class OnTheDotConfig(_Config):  # type: ignore[misc]
    """Brings ``manage.py onthedot``, and a link to the operators' page in the admin."""

    name = "onthedot.integrations.django"
    label = "onthedot"
    verbose_name = "onthedot"
    default_auto_field = "django.db.models.BigAutoField"
