"""Handles of tasks and flows that an app has added before, by their ids."""

from __future__ import annotations

from typing import Any

from onthedot.api.flow_handles import AsyncFlowHandle, FlowHandle
from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.client.portal import Portal
from onthedot.codec.untyped import decode_untyped_result


class AppHandles:
    _portal: Portal

    def handle(self, uuid: str) -> TaskHandle[Any]:
        """Returns the handle of any task, for sync code; its result is made of plain values. uuid: its id."""
        return TaskHandle(self._portal, uuid, decode_untyped_result, added=False)

    def ahandle(self, uuid: str) -> AsyncTaskHandle[Any]:
        """Returns the handle of any task, for async code; its result is made of plain values. uuid: its id."""
        return AsyncTaskHandle(self._portal, uuid, decode_untyped_result, added=False)

    def flow(self, uuid: str) -> FlowHandle[Any]:
        """Returns the handle of a flow, for sync code; its result is made of plain values. uuid: its id."""
        return FlowHandle(self._portal, uuid, decode_untyped_result, added=False)

    def aflow(self, uuid: str) -> AsyncFlowHandle[Any]:
        """Returns the handle of a flow, for async code; its result is made of plain values. uuid: its id."""
        return AsyncFlowHandle(self._portal, uuid, decode_untyped_result, added=False)
