"""Servers of PostgreSQL of one test alone, on ports of loopback: one, or a primary and its synchronous standby."""

import os
import shutil
import signal
import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import psutil
import psycopg

from tests.patience import PATIENCE_S


class Node:
    """One server, in a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self._programs, self._user = _programs()

    def create(self) -> None:
        """Make it, and start it."""
        self.run("initdb", "-D", str(self.folder), "--auth=trust", "--encoding=utf8", "-U", "postgres")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder.parent}"
        self.run("pg_ctl", "-D", str(self.folder), "-w", "-l", f"{self.folder}.log", "-o", options, "start")

    def promote(self) -> None:
        """Make the standby the primary, and wait until it is."""
        self.run("pg_ctl", "-D", str(self.folder), "-w", "promote")

    def kill(self) -> None:
        """Kill the postmaster and all that it has started, as a crash of the machine would."""
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            postmaster = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
            postmaster.suspend()  # or it would start others while we look
            everyone = [postmaster, *postmaster.children(recursive=True)]
            for each in everyone:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGKILL)
            psutil.wait_procs(everyone, PATIENCE_S)

    def tell(self, statement: str) -> None:
        """Run a statement of its owner."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def setting(self, name: str) -> str:
        """Return a setting as connections that begin now have it."""
        with psycopg.connect(self.url) as connection:
            return str(connection.info.parameter_status(name))

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL, which does not run as root."""
        subprocess.run([self._programs / program, *arguments], check=True, user=self._user, stdout=subprocess.DEVNULL)


@contextmanager
def nodes(*names: str, home: Path | None = None) -> Iterator[list[Node]]:
    """Servers of these names, not created yet, whose folders are in `home` or in a new one."""
    is_new, home = home is None, home or Path(mkdtemp(prefix="chatbot-nodes-"))
    found = [Node(home / name, _free_port()) for name in names]
    if user := _programs()[1]:
        shutil.chown(home, user)
    try:
        yield found
    finally:
        for each in found:
            each.kill()
        if is_new:
            shutil.rmtree(home)


@contextmanager
def pair() -> Iterator[tuple[Node, Node]]:
    """The primary and its standby; what the primary commits is on both."""
    with nodes("primary", "standby") as (primary, standby):
        primary.create()
        source = f"host=127.0.0.1 port={primary.port} user=postgres"
        standby.run("pg_basebackup", "-D", str(standby.folder), "-R", "-X", "stream", "-d", source)
        standby.start()
        primary.tell("ALTER SYSTEM SET synchronous_standby_names = '*'")  # not in the copy: it would wait for a third
        primary.tell("SELECT pg_reload_conf()")
        yield primary, standby


def several(*nodes: Node, role: str = "postgres") -> str:
    """The URL of the one of them that may be written to."""
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in nodes)
    return f"postgresql://{role}@{hosts}/postgres?target_session_attrs=read-write"


def _programs() -> tuple[Path, str | None]:
    """The folder of the programs, and the user that may run them; None for us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR
        from pgserver import utils
        from pgserver._commands import POSTGRES_BIN_PATH
    if os.geteuid() != 0:
        return POSTGRES_BIN_PATH, None
    utils.ensure_user_exists("pgserver")
    utils.ensure_prefix_permissions(POSTGRES_BIN_PATH)
    return POSTGRES_BIN_PATH, "pgserver"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
