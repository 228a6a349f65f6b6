"""The entry of INSTALLED_APPS."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    _Config = object
else:
    _Config = AppConfig


class OnTheDotConfig(_Config):
    """Brings ``manage.py onthedot``, and a link to the operators' page in the admin."""

    name = "onthedot.integrations.django"
    label = "onthedot"
    verbose_name = "onthedot"
    default_auto_field = "django.db.models.BigAutoField"
