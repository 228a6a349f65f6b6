"""TLS to Postgres: verified by default unless the server is on this machine; the URL can change it."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from onthedot import App
from onthedot.errors import StoreRefused
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.postgres.tls import tls_of
from onthedot.stores.postgres.url import PostgresAddress
from tests.support.services import debian
from tests.support.services.certificates import Certificates, Kind
from tests.support.services.postgres import Service
from tests.support.services.postgres_server import Server
from tests.support.services.programs import Missing, give_up
from tests.support.waits import wait_until

SEEN = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'onthedot'"


class Secured(NamedTuple):
    server: Server
    certificates: Certificates

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

    def shows(self, kind: Kind) -> None:
        chain, key = self.certificates.server(kind)
        data = self.server.folder / "data"
        shutil.copy(chain, data / "server.crt")
        shutil.copy(key, data / "server.key")
        self.reload()

    def reload(self) -> None:
        before = self.ask("SELECT pg_conf_load_time()")
        self.ask("SELECT pg_reload_conf()")
        wait_until(lambda: self.ask("SELECT pg_conf_load_time()") != before)

    def url(self, options: str, host: str = "127.0.0.1") -> str:
        ca = f"sslrootcert={self.certificates.ca}"
        return f"postgresql://postgres@{host}:{self.server.port}/postgres?{options.replace('sslrootcert', ca)}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    server = Server(tmp_path_factory.mktemp("postgres"), program=debian.wanted("postgres"))
    chain, key = certificates.server()
    try:
        server.make()
        shutil.copy(chain, server.folder / "data" / "server.crt")
        shutil.copy(key, server.folder / "data" / "server.key")
        server.settings["ssl"] = "on"
        server.start()
        yield Secured(server, certificates)
    except Missing as error:
        give_up(error)
    finally:
        server.stop()


@pytest.fixture
def secured(running: Secured) -> Secured:
    running.shows("good")
    return running


async def open_and_close(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_app_works_over_tls(secured: Secured, host: str) -> None:
    app = App("shop", store=secured.url("sslmode=verify-full&sslrootcert", host), stop_timeout=0)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app.running():
        assert await (await double.enqueue(21)).result(timeout=20) == 42
        assert set(secured.ask(SEEN)) == {(True,)}


@pytest.mark.parametrize(
    ("kind", "options", "advice"),
    [
        ("good", "sslmode=verify-full", r"not signed by a known authority: \?sslrootcert="),
        ("elsewhere", "sslmode=verify-full&sslrootcert", "is for another host"),
        ("expired", "sslmode=verify-full&sslrootcert", "out of date"),
        ("expired", "sslmode=verify-ca&sslrootcert", "out of date"),
    ],
)
async def test_an_untrusted_certificate_is_refused_with_advice(
    secured: Secured, kind: Kind, options: str, advice: str
) -> None:
    secured.shows(kind)
    with pytest.raises(StoreRefused, match=f"{advice}.*sslmode=require encrypts without verifying it"):
        await open_and_close(secured.url(options))
    await open_and_close(secured.url("sslmode=require"))


async def test_verify_ca_ignores_the_host_name(secured: Secured) -> None:
    secured.shows("elsewhere")
    await open_and_close(secured.url("sslmode=verify-ca&sslrootcert"))


async def test_a_server_without_tls_is_refused_if_the_url_requires_it(postgres: Service) -> None:
    with pytest.raises(StoreRefused, match=r"does not offer TLS.*sslmode=disable, but then others"):
        await open_and_close(f"{postgres.url}?sslmode=verify-full")


async def test_a_local_server_that_requires_tls_is_refused_with_advice(secured: Secured) -> None:
    rules = secured.server.folder / "data" / "pg_hba.conf"
    usual = rules.read_text()
    rules.write_text("hostssl all all 127.0.0.1/32 trust\n")
    secured.reload()
    try:
        with pytest.raises(StoreRefused, match=r"takes only connections with TLS: add \?sslmode=verify-full"):
            await open_and_close(secured.url(""))
        await open_and_close(secured.url("sslmode=verify-full&sslrootcert"))
    finally:
        rules.write_text(usual)
        secured.reload()


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1:1", "127.8.8.8", "[::1]:5433", "%2Frun%2Fpostgresql"])
def test_a_local_server_is_used_without_tls(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    for name in ("PGSSLMODE", "PGHOST", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    assert tls_of(PostgresAddress.of(f"postgresql://me@{host}/shop")) is False


@pytest.mark.parametrize("host", ["db", "db.example:5433", "10.0.0.1", "localhost,db", "[fe80::1]"])
def test_a_remote_server_is_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str) -> None:
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    context = tls_of(PostgresAddress.of(f"postgresql://me@{host}/shop"))
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    own = tmp_path / "ca.pem"
    own.touch()
    assert tls_of(PostgresAddress.of(f"postgresql://me@{host}/shop?sslrootcert={own}")) == "verify-full"
    assert tls_of(PostgresAddress.of(f"postgresql://me@{host}/shop?sslmode=disable")) == "disable"


def test_the_environment_may_set_the_tls_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    assert tls_of(PostgresAddress.of("postgresql://db/shop")) == "require"
    monkeypatch.setenv("PGSERVICE", "shop")
    assert tls_of(PostgresAddress.of("postgresql:///")) is None


async def test_a_missing_certificate_file_is_named() -> None:
    with pytest.raises(StoreRefused, match=r"sslrootcert names /nowhere/ca\.pem, which is no file"):
        await open_and_close("postgresql://db/shop?sslrootcert=/nowhere/ca.pem")
