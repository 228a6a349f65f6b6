"""Starts a real Kafka: one node that is broker and controller, from downloaded jars. No pytest in here."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.process_guard import start_guarded
from tests.support.services import kafka_jars
from tests.support.services.kafka_protocol import broker_count
from tests.support.services.ports import free_port
from tests.support.services.programs import Missing

PATIENCE = 60.0  # seconds for a broker to start
PLAIN = "PLAINTEXT"  # the listener of the tests; others are added by name
USER = "shop"
PASSWORD = "secret"  # for a login by SCRAM, which a broker knows from its first start on
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
SETTINGS = {
    "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": PLAIN, "auto.create.topics.enable": "false",
    "default.replication.factor": "1", "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1", "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1", "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500",
    "broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",  # ready sooner after kill -9
    "num.network.threads": "2", "num.io.threads": "2", "log.cleaner.enable": "false",
}  # fmt: skip
JVM = (
    "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "--enable-native-access=ALL-UNNAMED",
)  # fmt: skip


@dataclass
class Broker:
    """On free loopback ports, in its own folder. It keeps its ports and its data when it is started again."""

    settings: dict[str, str] = field(default_factory=dict[str, str])  # in addition to SETTINGS
    listeners: dict[str, str] = field(default_factory=dict[str, str])  # name → protocol, beside the plain one
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.ports: dict[str, int] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[PLAIN]}"

    def address_of(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"  # the name that certificates have

    def start(self) -> None:
        for _ in range(5):  # another program may take a free port first
            is_new = not self.ports
            if is_new:
                self.ports = {name: free_port() for name in (PLAIN, "CONTROLLER", *self.listeners)}
            self._write_settings()
            self._format()
            with (self.folder / "log").open("ab") as log:
                command = [*_java(), "kafka.Kafka", str(self._properties)]
                self.process = start_guarded(command, stdout=log, stderr=log, start_new_session=True)
            if self._is_ready():
                return
            self._end(signal.SIGKILL)
            if is_new:
                self.ports = {}
        raise Missing(f"Kafka does not start: {(self.folder / 'log').read_text('utf-8')[-2000:]}")

    def stop(self) -> None:
        """In order: it hands over its partitions and flushes its files."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Like a power cut, except that what it has written remains."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        if self.process is not None:
            self.stop()
        self._folder.cleanup()

    def _end(self, how: int) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _write_settings(self) -> None:
        names = {PLAIN: PLAIN, "CONTROLLER": PLAIN, **self.listeners}
        clients = {PLAIN: "127.0.0.1", **dict.fromkeys(self.listeners, "localhost")}
        settings = {
            **SETTINGS,
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[name]}" for name in names),
            "advertised.listeners": ",".join(f"{name}://{host}:{self.ports[name]}" for name, host in clients.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
            "log.dirs": str(self.folder / "data"),
            **self.settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")

    def _format(self) -> None:
        """A formatted folder does not name its ports: it is made once and copied, which saves the start of a JVM."""
        data = self.folder / "data"
        if data.exists():
            return
        template = kafka_jars.PLACE / "formatted"
        if not template.exists():
            self._run_format()
            part = shutil.copytree(data, kafka_jars.PLACE / self.folder.name)
            try:
                part.rename(template)
            except OSError:  # another run was first
                shutil.rmtree(part)
            return
        shutil.copytree(template, data)

    def _run_format(self) -> None:
        command = [*_java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties)]
        command += ["--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"Kafka cannot format its folder: {(done.stdout + done.stderr).strip()[-2000:]}")

    def _is_ready(self) -> bool:
        """It is when its metadata name a broker; an open port is not enough."""
        deadline = time.monotonic() + PATIENCE
        assert self.process is not None
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if broker_count(self.address) > 0:
                    return True
            except OSError:
                pass
            time.sleep(0.02)
        return False


def _java() -> list[str]:
    return [kafka_jars.java(), *JVM, "-cp", kafka_jars.class_path()]
