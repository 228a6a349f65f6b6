"""Tasks in processes of a pool, started and killed through a fork server."""

from onthedot.executors.processes.pool import Processes as Processes
