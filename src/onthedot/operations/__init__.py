"""The verbs of an operator: find, explain, retry, cancel, pause, limit, move. They never need user code."""

from onthedot.operations.operations import Operations as Operations
