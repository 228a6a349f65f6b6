"""The metrics of worker processes and their components: definitions."""

from __future__ import annotations

from onthedot.model.figures import Metric

UP = Metric("onthedot_worker_up", "gauge", "Worker processes that are ready, by code release.", ("release",))
SLOTS = Metric("onthedot_worker_slots", "gauge", "Slots for tasks, by pool.", ("pool",))
BUSY = Metric("onthedot_worker_busy", "gauge", "Slots that are taken, by pool.", ("pool",))
STARTS = Metric("onthedot_worker_starts_total", "counter", "Runs that were started.", ("source",))
TASKS = Metric("onthedot_worker_tasks_total", "counter", "Tasks that have ended, by state.", ("source", "state"))
RETRIES = Metric("onthedot_worker_retries_total", "counter", "Runs that failed and are retried.", ("source",))
LOST_RUNS = Metric(
    "onthedot_worker_lost_runs_total", "counter", "Runs that did not count: another worker had the task.", ("source",)
)
LATENCY = Metric(
    "onthedot_worker_queue_latency_seconds", "histogram", "From the due time of a task to its start.", ("source",)
)
DURATION = Metric(
    "onthedot_worker_task_duration_seconds", "histogram", "From the start of a run until it was settled.", ("source",)
)
TURNS = Metric("onthedot_worker_turns_total", "counter", "Turns that the store has answered.")
WINDOWS = Metric(
    "onthedot_worker_windows_total", "counter", "Windows of schedules: fired, failed, missed, overlap.", ("outcome",)
)
LOOP_LAG = Metric(
    "onthedot_worker_loop_lag_seconds",
    "gauge",
    "Longest delay of an event loop in the last second, of all processes.",
    largest=True,
)
WORKER_RSS = Metric("onthedot_worker_rss_bytes", "gauge", "Resident memory of the worker processes.")
STORE_ERRORS = Metric(
    "onthedot_store_errors_total",
    "counter",
    "Calls of the store that failed and were repeated: unavailable, busy, full, refused, other.",
    ("kind",),
)
BUS_ERRORS = Metric(
    "onthedot_bus_errors_total", "counter", "Calls of the bus that failed; about one per second of an outage."
)

SENT = Metric("onthedot_outbox_sent_total", "counter", "Events that the bus has taken.", ("topic",))
REFUSED = Metric("onthedot_relay_refused_total", "counter", "Events that the bus has refused.", ("topic",))
SEND_SECONDS = Metric("onthedot_relay_send_seconds", "histogram", "Time until the bus has a batch of events.")
RELAY_BUCKETS = Metric("onthedot_relay_buckets", "gauge", "Buckets of the outbox, of 16, that this relay sends.")
AGENT_EVENTS = Metric(
    "onthedot_agent_events_total",
    "counter",
    "Events of an agent: done, failed, skipped, duplicate.",
    ("agent", "outcome"),
)
AGENT_RETRIES = Metric(
    "onthedot_agent_retries_total",
    "counter",
    "Runs of an agent after a failed one; succeeded: true or false.",
    ("agent", "succeeded"),
)
AGENT_IN_FLIGHT = Metric(
    "onthedot_agent_in_flight", "gauge", "Events that an agent has received and not handled.", ("agent",)
)
AGENT_LAG = Metric(
    "onthedot_agent_lag",
    "gauge",
    "Events of an agent's partitions that are not committed.",
    ("agent", "topic", "partition"),
)
DEAD_LETTERS = Metric("onthedot_dead_letters_total", "counter", "Events that an agent could not handle.", ("agent",))
RESUME_SECONDS = Metric(
    "onthedot_resume_seconds", "histogram", "From the creation of a resume handle until all its events had come."
)

BATCH_TASKS = Metric("batch_tasks_total", "counter", "Parts of batches that have ended.", ("type", "status"))
BATCH_DURATION = Metric(
    "batch_task_duration_seconds", "histogram", "From the last start of a part to its end.", ("type",)
)
BATCH_FIRST = Metric(
    "batch_first_response_seconds", "histogram", "From the add of a batch to its first part with items.", ("type",)
)

CPU = Metric("process_cpu_seconds_total", "counter", "CPU time of the supervisor and its worker processes.")
RSS = Metric("process_resident_memory_bytes", "gauge", "Resident memory of the supervisor and its worker processes.")
OPEN_FDS = Metric("process_open_fds", "gauge", "Open file descriptors of the supervisor and its worker processes.")
START_TIME = Metric("process_start_time_seconds", "gauge", "Start of the supervisor, in seconds since 1970.")

METRICS: tuple[Metric, ...] = (
    UP, SLOTS, BUSY, STARTS, TASKS, RETRIES, LOST_RUNS, LATENCY, DURATION, TURNS, WINDOWS, LOOP_LAG, WORKER_RSS,
    STORE_ERRORS, BUS_ERRORS,
    SENT, REFUSED, SEND_SECONDS, RELAY_BUCKETS,
    AGENT_EVENTS, AGENT_RETRIES, AGENT_IN_FLIGHT, AGENT_LAG, DEAD_LETTERS, RESUME_SECONDS,
    BATCH_TASKS, BATCH_DURATION, BATCH_FIRST,
    CPU, RSS, OPEN_FDS, START_TIME,
)  # fmt: skip
"""All of a worker port, in the order of its page."""
