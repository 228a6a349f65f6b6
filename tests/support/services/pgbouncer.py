"""A real PgBouncer in transaction mode in front of the Postgres of this run.

It is used by a role with minimal rights (``onthedot schema print --role``), in a separate database.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from onthedot.stores.postgres.grants import rights_text
from onthedot.stores.postgres.schema import install
from tests.support.services import debian, server_guard
from tests.support.services.ports import free_port
from tests.support.services.postgres import Service
from tests.support.services.postgres_server import without_root

DATABASE = "pooled"
ROLE = "pooled"
PATIENCE = 10.0


class Pooled(Service):
    """Stores connect through the pooler; queries of the tests go to the server as its owner."""

    def __init__(self, direct: str, port: int, server: int) -> None:
        hosts = f"127.0.0.1:{port}/{DATABASE}?statement_cache_size=0&auto_schema=0"
        super().__init__(f"postgresql://{ROLE}@{hosts}&listen=127.0.0.1:{server}")
        self.without_hints = f"postgresql://{ROLE}@{hosts}"  # the pooler does not forward hints
        self.direct = direct
        self._admin = f"postgresql://{ROLE}@127.0.0.1:{port}/pgbouncer"

    def left(self) -> list[tuple[object, ...]]:
        """Clients of the pooler; its connections to the server do not count."""
        ours = [row for row in self.clients() if row[1] == DATABASE]
        return ours[len(self.kept_pids()) :]

    def clients(self) -> list[tuple[object, ...]]:
        with psycopg.connect(self._admin, autocommit=True) as connection:
            rows = connection.execute("SHOW CLIENTS").fetchall()
        return [(row[1], row[2]) for row in rows]


@contextmanager
def pooler(service: Service) -> Iterator[Pooled]:
    program = debian.wanted("pgbouncer")
    assert service.server is not None
    direct = f"{service.server.url.rpartition('/')[0]}/{DATABASE}"
    port = free_port()
    service.ask(f"CREATE DATABASE {DATABASE}")
    service.ask(f"CREATE ROLE {ROLE} LOGIN")
    install(direct)
    with psycopg.connect(direct, autocommit=True) as connection:
        connection.execute(rights_text(ROLE))
    with TemporaryDirectory(prefix="pgbouncer-") as folder:
        file = _write_config(Path(folder), port, service.server.port)
        command = [sys.executable, server_guard.__file__, *without_root(), program.path, "-q", str(file)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=program.environment)
        pooled = Pooled(direct, port, service.server.port)
        try:
            _wait(pooled, process, Path(folder, "log"))
            yield pooled
        finally:
            pooled.close()
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    service.ask(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    service.ask(f"DROP ROLE {ROLE}")


def _write_config(folder: Path, port: int, server: int) -> Path:
    (folder / "users").write_text(f'"{ROLE}" ""\n')
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\npool_mode = transaction\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {folder}/users\nadmin_users = {ROLE}\nlogfile = {folder}/log\ndefault_pool_size = 5\n"
    )
    return file


def _wait(pooled: Pooled, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            pooled.clients()
            return
        except psycopg.OperationalError as error:
            logged = log.read_text() if log.exists() else ""
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"pgbouncer does not answer: {error}: {logged[-400:]}") from error
            time.sleep(0.02)
