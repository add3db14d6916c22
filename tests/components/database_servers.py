"""Database servers for ML Metadata, each in its own folder; nothing is installed."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from tests.ports import free_port

_STARTUP_SECONDS = 60
# A server refuses to run as root, and other users cannot read root's temporary folders.
_USER = "nobody" if os.getuid() == 0 else None
_MARIADB_PACKAGES = ("mariadb-server-core", "libaio1", "liburing2")


@contextlib.contextmanager
def postgresql():
    """Yields a connection and its URL; skips the test where PostgreSQL is not installed."""
    programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = programs[-1] if programs else shutil.which("initdb")
    if not initdb:
        pytest.skip("PostgreSQL's initdb is missing; install Debian's package postgresql")
    programs = pathlib.Path(initdb).parent
    with _folder() as folder:
        data, port = folder / "data", free_port()
        create = [initdb, "-D", data, "-U", "tfx", "--auth=trust", "--no-sync"]
        subprocess.run(create, user=_USER, cwd=folder, check=True, capture_output=True)
        server = [programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-F",
                  "-h", "127.0.0.1"]  # fmt: skip
        # On SIGTERM it would wait for its clients to disconnect.
        with _running(server, port=port, folder=folder, stop=signal.SIGINT):
            connection = mlmd.ConnectionConfig()
            target = connection.postgresql
            target.host, target.port, target.user = "127.0.0.1", str(port), "tfx"
            target.password, target.dbname = "any", "mlmd"
            yield connection, f"postgresql://tfx:any@127.0.0.1:{port}/mlmd"


@contextlib.contextmanager
def mysql():
    """Yields a connection and its URL; the server is Debian's MariaDB, unpacked if necessary."""
    with _folder() as folder:
        variables = {**os.environ}
        program = shutil.which("mariadbd") or shutil.which("mysqld")
        options = ["--no-defaults", f"--datadir={folder}/data", f"--socket={folder}/socket"]
        if not program:
            root = _unpacked(folder / "packages")
            program = root / "usr/sbin/mariadbd"
            options.append(f"--lc-messages-dir={root}/usr/share/mysql")
            libraries = (f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/lib/x86_64-linux-gnu")
            variables["LD_LIBRARY_PATH"] = ":".join(libraries)
        (folder / "data").mkdir()
        if _USER:
            shutil.chown(folder / "data", _USER)
        base = [program, *options, "--skip-grant-tables"]
        subprocess.run([*base, "--bootstrap"], input=b"CREATE DATABASE mysql;\n", check=True,
                       user=_USER, env=variables, capture_output=True)  # fmt: skip
        port = free_port()
        # With --skip-grant-tables it does not listen unless networking is switched on.
        server = [*base, "--skip-networking=0", "--bind-address=127.0.0.1", f"--port={port}"]
        with _running(server, port=port, folder=folder, env=variables):
            connection = mlmd.ConnectionConfig()
            target = connection.mysql
            target.host, target.port, target.user = "127.0.0.1", port, "root"
            target.database = "mlmd"
            yield connection, f"mysql://root@127.0.0.1:{port}/mlmd"


@contextlib.contextmanager
def _folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="tfx_perf_server_"))
    path.chmod(0o755)
    if _USER:
        shutil.chown(path, _USER)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _unpacked(folder):
    """Unpacks Debian's packages of MariaDB; skips the test if they cannot be had."""
    folder.mkdir()
    for command in (["apt-get", "download", *_MARIADB_PACKAGES], ["sh", "-c", _UNPACK]):
        if not shutil.which(command[0]):
            pytest.skip(f"mariadbd is missing, and {command[0]} to get it with, too")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            pytest.skip(f"mariadbd is missing and its packages cannot be had: {reason}")
    return folder / "root"


_UNPACK = "for package in *.deb; do dpkg -x $package root || exit 1; done"


@contextlib.contextmanager
def _running(command, *, port, folder, env=None, stop=signal.SIGTERM):
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            command, user=_USER, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + _STARTUP_SECONDS
        while True:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start: {(folder / 'log').read_text()[-500:]}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield
    finally:
        server.send_signal(stop)
        server.wait()
