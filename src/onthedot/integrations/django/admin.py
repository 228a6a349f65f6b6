"""The link from the admin to the operators' page: ``OPTIONS["PAGE"]`` of the default entry of TASKS."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect

from onthedot.integrations.django import Backend
from onthedot.integrations.django.framework import configured
from onthedot.integrations.django.models import OperatorsPage

if TYPE_CHECKING:

    class _ModelAdmin:
        def has_view_permission(self, request: Any, obj: Any = None) -> bool: ...
else:
    _ModelAdmin = admin.ModelAdmin


class OperatorsPageAdmin(_ModelAdmin):
    """Redirects to the page. Users need the permission ``onthedot.view_operatorspage``."""

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:  # noqa: ARG002 - Django's signature
        if not self.has_view_permission(request):
            raise PermissionDenied
        return HttpResponseRedirect(_page())

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return bool(_page()) and bool(super().has_view_permission(request, obj))

    def has_module_permission(self, request: Any) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        return False


def _page() -> str:
    found = configured["default"]
    return found.sources.options.PAGE if isinstance(found, Backend) else ""


admin.site.register(OperatorsPage, OperatorsPageAdmin)
