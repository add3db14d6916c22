"""Opens ML Metadata: a SQLite file, or a database on MySQL or PostgreSQL."""

from __future__ import annotations

import pathlib
from urllib import parse

from tfx_perf import mlmd
from tfx_perf.core import errors


def is_url(source: str) -> bool:
    """Returns whether `source` names a database on a server."""
    return source.startswith(("mysql://", "postgresql://"))


def without_password(source: str) -> str:
    """Returns the name of a database for an error, without the password."""
    if not is_url(source):
        return f"path={source}"
    scheme, _, rest = source.partition("://")
    return f"url={scheme}://{rest.rpartition('@')[2]}"


def open_store(source: str, *, writable: bool = False) -> mlmd.MetadataStore:
    """Opens an existing database; UserError if it does not exist, or is not one of ML Metadata.

    `source` is the path of an SQLite file, `mysql://user:password@host:port/database`, or the same
    with `postgresql://`. Unless it is `writable`, a pipeline may write to an SQLite file meanwhile.
    """
    if not mlmd.IS_INSTALLED:
        raise errors.UserError(
            f"Expected ML Metadata, to read a database. Received: {without_password(source)} and "
            f"no such package. {errors.INSTALL_TFX}"
        )
    if is_url(source):
        connection = _server(source)
        expected = "Expected a database of ML Metadata that can be reached"
    else:
        connection = _file(pathlib.Path(source), writable=writable)
        expected = "Expected a SQLite database of ML Metadata"
    try:
        return mlmd.MetadataStore(connection)
    except (RuntimeError, mlmd.errors.StatusError) as error:
        text = str(error).rpartition(" query: ")[0] or str(error)  # without the long statement
        reason = " ".join(text.split())[:160]
        received = without_password(source)
        raise errors.UserError(f"{expected}. Received: {received} ({reason}).") from error


def located(uri: str, source: str) -> str:
    """Returns where an artifact's folder is; looks for a relative one above the database."""
    path = pathlib.Path(uri)
    if path.is_absolute() or "://" in uri or is_url(source) or path.exists():
        return uri
    above = pathlib.Path(source).resolve().parents
    return next((str(base / path) for base in above if (base / path).exists()), uri)


def _file(path: pathlib.Path, *, writable: bool) -> mlmd.proto.ConnectionConfig:
    if not path.is_file() or not path.stat().st_size:
        raise errors.UserError(
            "Expected the SQLite file that a pipeline records its runs in. Received: "
            f"path={path}, which is no file, or empty; run the pipeline first or correct the path."
        )
    modes = mlmd.proto.SqliteMetadataSourceConfig
    connection = mlmd.proto.ConnectionConfig()
    connection.sqlite.filename_uri = str(path)
    connection.sqlite.connection_mode = modes.READWRITE if writable else modes.READONLY
    return connection


def _server(source: str) -> mlmd.proto.ConnectionConfig:
    try:
        url = parse.urlsplit(source)
        port = url.port
    except ValueError as error:  # the message may contain the password
        raise errors.UserError(
            f"Expected {source.partition('://')[0]}://user:password@host:port/database. "
            "Received: another form of URL."
        ) from error
    database = parse.unquote(url.path.strip("/"))
    if not (url.hostname and database):
        raise errors.UserError(
            f"Expected {url.scheme}://user:password@host:port/database. "
            f"Received: {without_password(source)}."
        )
    connection = mlmd.proto.ConnectionConfig()
    if url.scheme == "mysql":
        target = connection.mysql
        target.database = database
        target.port = port or 3306
    else:
        target = connection.postgresql
        target.dbname = database
        target.port = str(port or 5432)
    target.host = url.hostname
    target.user = parse.unquote(url.username or "")
    target.password = parse.unquote(url.password or "")
    target.skip_db_creation = True  # a mistyped name is an error, not a new database
    return connection
