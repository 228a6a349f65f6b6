"""The one place that decides what an error means for its task: retry, fail or cancel."""

from __future__ import annotations

import random as randomness

from onthedot.clock.durations import to_duration_ms
from onthedot.errors import Cancel, Reject, Retry, Snooze, StepChanged, TaskCancelled, TaskTimeout
from onthedot.model.failures import encode_failure, encode_reason, is_a
from onthedot.model.options import ResolvedOptions
from onthedot.stores.contract import Ended, Lease, Outcome, Record, Requeued


class LeaseLost(TaskCancelled):
    """Another worker has the task by now, or the store has lost it. This run does not count."""

    def __init__(self, task: str) -> None:
        super().__init__("its lease is lost: another worker has it by now", task)


def outcome_for_error(
    error: BaseException, record: Record, lease: Lease, options: ResolvedOptions, random: randomness.Random
) -> tuple[Outcome, BaseException]:
    """The outcome of a run that raised, and the error that counts: the user's backoff may raise one, too.

    Whatever classification raises fails the task.
    """
    try:
        return classify_error(error, record, lease, options, random), error
    except BaseException as broken:  # noqa: BLE001 - the user's backoff raised, or a Retry(after) is not a duration
        broken.__context__ = error
        return failed_outcome(broken, record, lease, options), broken


def is_own_end(error: BaseException, record: Record) -> bool:
    """Whether the error ends its task in a way that no classification changes: a cancel of the task, a lost lease, or
    saved steps that the code does not have any more."""
    return is_a(error, StepChanged) or (is_a(error, TaskCancelled) and error.task == record.uuid)


def classify_error(
    error: BaseException, record: Record, lease: Lease, options: ResolvedOptions, random: randomness.Random
) -> Outcome:
    """The outcome of an error by the options of its task."""
    after: int | None = None
    if is_a(error, Snooze):
        return Requeued(lease, to_duration_ms(error.after, "Snooze(after)"), counted=False)
    if is_a(error, Cancel):
        return cancelled_outcome(record, lease, options, error.reason or "Cancel")
    if is_a(error, Reject) or is_a(error, StepChanged):
        return failed_outcome(error, record, lease, options)
    if is_a(error, LeaseLost) and error.task == record.uuid:
        return Requeued(lease, None, counted=False)  # refused, unless an older state is restored that knows the lease
    if is_a(error, TaskCancelled) and error.task == record.uuid:  # its own, from raise_if_cancelled()
        return cancelled_outcome(record, lease, options, error.reason)
    if is_a(error, Retry) and error.after is not None:
        after = to_duration_ms(error.after, "Retry(after)")
    error_class = type(error)
    wanted = issubclass(error_class, (Retry, TaskTimeout, *options.retry_on))
    if not wanted or issubclass(error_class, options.reject_on) or record.history.retries >= options.retries_for(error):
        return failed_outcome(error, record, lease, options)
    if after is None:
        after = options.backoff.delay_ms(record.history.retries + 1, error, random)
    return Requeued(lease, after, counted=True, error=encode_failure(error, record.attempt))


def cancelled_outcome(record: Record, lease: Lease, options: ResolvedOptions, reason: str) -> Ended:
    return Ended(lease, "cancelled", encode_reason(reason, record.attempt), options.keep)


def failed_outcome(error: BaseException, record: Record, lease: Lease, options: ResolvedOptions) -> Ended:
    return Ended(lease, "failed", encode_failure(error, record.attempt), options.keep_failed)
