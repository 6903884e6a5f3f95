"""Opening the file and changing it: one transaction at a time, all of it or nothing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from whet.core.errors import RecordsError, check, fail
from whet.db.schema import MIGRATIONS, VERSION_TABLE

BUSY_SECONDS = 60.0
"""How long to wait for another process that is writing."""

ELSEWHERE = "set WHET_DB_PATH to a file that you may write"


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """The database in the file, with the tables of this version; a new file is made.

    A file of an older version is brought up to date, unless it is opened only for reading.
    """
    with explained(path):
        check(not path.is_dir(), "WH4101", f"the tuning database '{path}' is a folder",
              hint="WHET_DB_PATH names a file", kind=RecordsError)  # fmt: skip
        if read_only:
            return _connect_to_read(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, path, MIGRATIONS)
        except BaseException:
            connection.close()
            raise
        return connection


def may_write(path: Path) -> bool:
    """Whether this process may change the file, or make it (with what lies beside it)."""
    folder = path.parent
    while not _is_there(folder) and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK) and (not _is_there(path) or os.access(path, os.W_OK))


def _is_there(path: Path) -> bool:
    """Whether there is something, as far as this process may look."""
    try:
        return path.exists()
    except OSError:
        return False


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """A transaction: what the block writes becomes visible and lasting as a whole if it ends well.

    The lock is taken at the start: two writers then wait for each other instead of finding out
    at the end that one of them must begin anew.
    """
    with explained(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the file system as errors with a code."""
    try:
        yield
    except sqlite3.Error as error:
        _explain(path, error)
    except OSError as error:
        fail("WH4102", f"the tuning database '{path}' cannot be opened: {error.strerror or error}",
             hint=ELSEWHERE, kind=RecordsError)  # fmt: skip


def _explain(path: Path, error: sqlite3.Error) -> NoReturn:
    # The low byte is the kind of error, the rest says more about it.
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    hints = {
        sqlite3.SQLITE_FULL: "free some space on the disk; what was committed is kept",
        sqlite3.SQLITE_IOERR: "free some space on the disk; what was committed is kept",
        sqlite3.SQLITE_READONLY: ELSEWHERE,
        sqlite3.SQLITE_BUSY: "another process is writing; try again when it has ended",
    }
    if primary in hints:
        fail("WH4102", f"the tuning database '{path}' cannot be written: {error}",
             hint=hints[primary], kind=RecordsError)  # fmt: skip
    # No database, a damaged one, or one whose tables are not those of its version.
    fail("WH4101", f"the tuning database '{path}' cannot be read: {error}",
         hint="move the file away and import an export, if there is one",
         kind=RecordsError)  # fmt: skip


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """The file as it is.  Where nothing can be written beside it, nobody else can change it."""
    check(path.exists(), "WH4101", f"there is no tuning database '{path}'",
          hint="tuning a model makes one", kind=RecordsError)  # fmt: skip
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
        )
        try:
            version = _version(connection)
        except sqlite3.OperationalError:
            connection.close()
            if mode != "mode=ro":
                raise
            continue
        _refuse_newer(path, version)
        if version == len(MIGRATIONS):
            return connection
        connection.close()
        fail("WH4101", f"the tuning database '{path}' is of an older version ({version})",
             hint="open it once with the right to write, which brings it up to date",
             kind=RecordsError)  # fmt: skip
    raise AssertionError


def _use_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead logging: readers never wait, and a crash loses nothing committed.

    Changing the mode does not wait for others as all else does, hence the loop.
    """
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]
) -> None:
    if _version(connection) == len(migrations):
        return
    with transaction(connection, path):
        connection.execute(VERSION_TABLE)
        version = _version(connection)  # again: another process may have been faster
        _refuse_newer(path, version)
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (?)", (len(migrations),))


def _version(connection: sqlite3.Connection) -> int:
    known = "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"
    if connection.execute(known).fetchone() is None:
        return 0
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return int(row[0]) if row else 0


def _refuse_newer(path: Path, version: int) -> None:
    if version > len(MIGRATIONS):
        fail("WH4103", f"the tuning database '{path}' has version {version}, "
             f"this is whet for version {len(MIGRATIONS)}",
             hint="use the newer whet, or another file (WHET_DB_PATH)",
             kind=RecordsError)  # fmt: skip
