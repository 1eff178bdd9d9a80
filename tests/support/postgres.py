"""A private PostgreSQL server for tests: own data directory, own free port, nothing kept. Used by conftest fixtures."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

SERVER_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}


@dataclass
class PostgresServer:
    """A running server. `stop` and `start` keep data and port, so a test can restart it."""

    programs: Path
    data: Path
    port: int
    _databases: int = field(default=0)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._pg_ctl("start", "-w", "-t", "30", "-l", str(self.data / "log"), "-o", f"-p {self.port}")

    def stop(self) -> None:
        """Ends it at once, as a crash would; clients find their connections closed."""
        self._pg_ctl("stop", "-m", "immediate", "-w")

    def new_database(self) -> str:
        """Makes an empty database and returns its URL."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def _pg_ctl(self, *arguments: str) -> None:
        as_database_user([str(self.programs / "pg_ctl"), "-D", str(self.data), *arguments])


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Starts a server and removes it at the end. Fails the test when PostgreSQL isn't installed."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="runyard-postgres-"))
    try:
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        data = folder / "data"
        as_database_user(
            [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        )
        _configure(data / "postgresql.conf")
        server = PostgresServer(programs, data, _free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_database_user(command: list[str]) -> None:
    """Runs one of PostgreSQL's programs; root isn't allowed to, so root becomes the user postgres."""
    user = "postgres" if os.geteuid() == 0 else None
    result = subprocess.run(
        command,
        user=user,
        cwd="/",
        timeout=60,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        pytest.fail(f"{Path(command[0]).name} failed: {result.stderr.strip()}")


def _configure(file: Path) -> None:
    lines = "".join(f"{name} = '{value}'\n" for name, value in SERVER_SETTINGS.items())
    file.write_text(file.read_text() + lines)


def _programs() -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    if versions:
        return versions[-1].parent
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    pytest.fail("PostgreSQL isn't installed: run `apt-get install postgresql` (or make cluster-deps).")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
