"""Ratings and choices in SQLite: one transaction each, on disk before it is acknowledged, counted once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...errors import ConfigError
from ...ratings import Rating
from ...ratings.preferences import Choice

_SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS listeners (
    number INTEGER PRIMARY KEY,
    token_hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    joined TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE TABLE IF NOT EXISTS ratings (
    listener INTEGER NOT NULL REFERENCES listeners (number),
    trial TEXT NOT NULL,
    system TEXT NOT NULL,
    rating INTEGER NOT NULL CHECK (typeof(rating) = 'integer' AND rating BETWEEN 0 AND 100),
    submitted TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (listener, trial, system)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS choices (
    listener INTEGER NOT NULL REFERENCES listeners (number),
    trial TEXT NOT NULL,
    first TEXT NOT NULL,
    second TEXT NOT NULL,
    x TEXT NOT NULL CHECK (x IN ('', first, second)),
    chosen TEXT NOT NULL CHECK (chosen IN ('', first, second)),
    submitted TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (listener, trial, first, second)
) WITHOUT ROWID;
"""

_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's: none is taken for another."""


class Listener(NamedTuple):
    """Someone who takes the test; `name` is what they typed."""

    number: int
    """1, 2, ... It decides what they hear, and stays here."""
    name: str
    label: str
    """Their name in results. Whoever knows their own cannot tell another one."""


class Store:
    """All that a running test writes. One connection behind a lock: SQLite writes one at a time anyway."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            # all of it in one file, always: whoever copies that has every rating
            self._connection.execute("PRAGMA journal_mode = DELETE")
            self._connection.execute("PRAGMA synchronous = FULL")  # a commit that returns is on disk
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.executescript(_SCHEMA)
            self.secret = self._secret()
            """Key of the stimuli's aliases and of the listeners' codes."""
        except sqlite3.Error as error:
            raise ConfigError(f"{path}: cannot be used as the ratings' database ({error})") from None

    def close(self) -> None:
        """Close the file; every rating that was acknowledged is in it."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _secret(self) -> bytes:
        """Made once for a test, so that what is derived from it survives a restart.

        Where there is one, nothing is written: results can be read from a copy that cannot be written.
        """
        query = "SELECT value FROM secrets WHERE name = 'aliases'"
        found = self._connection.execute(query).fetchone()
        if found is None:
            with self._transaction() as db:
                db.execute("INSERT OR IGNORE INTO secrets VALUES ('aliases', ?)", (secrets.token_bytes(32),))
                found = db.execute(query).fetchone()
        return bytes(found[0])

    def code(self, purpose: str, number: int) -> str:
        """A code of a listener that cannot be guessed, as in 7K3M-9QXT."""
        digest = hmac.new(self.secret, f"{purpose} {number}".encode(), hashlib.sha256).digest()
        letters = "".join(_LETTERS[byte % 32] for byte in digest[:8])
        return f"{letters[:4]}-{letters[4:]}"

    def _listener(self, number: int, name: str) -> Listener:
        return Listener(number, name, self.code("label", number))

    def add_listener(self, name: str) -> tuple[str, Listener]:
        """A new listener and the token that proves who they are; only its hash is kept."""
        token = secrets.token_urlsafe(24)
        with self._transaction() as db:
            row = db.execute("INSERT INTO listeners (token_hash, name) VALUES (?, ?)", (_hash(token), name))
            return token, self._listener(int(row.lastrowid or 0), name)

    def listener(self, token: str) -> Listener | None:
        with self._lock:
            query = "SELECT number, name FROM listeners WHERE token_hash = ?"
            row = self._connection.execute(query, (_hash(token),)).fetchone()
        return self._listener(*row) if row else None

    def rate(self, listener: Listener, trial: str, system: str, rating: int) -> tuple[int, bool]:
        """Store a rating unless there is one; returns the one stored, and whether it is new.

        The first submission counts: a repeated one, by a double click or after a lost answer, changes nothing.
        """
        with self._transaction() as db:
            new = db.execute(
                "INSERT OR IGNORE INTO ratings (listener, trial, system, rating) VALUES (?, ?, ?, ?)",
                (listener.number, trial, system, rating),
            ).rowcount
            query = "SELECT rating FROM ratings WHERE (listener, trial, system) = (?, ?, ?)"
            return int(db.execute(query, (listener.number, trial, system)).fetchone()[0]), new == 1

    def ratings_of(self, listener: Listener) -> dict[tuple[str, str], int]:
        """A listener's ratings by (trial, system)."""
        with self._lock:
            query = "SELECT trial, system, rating FROM ratings WHERE listener = ?"
            rows = self._connection.execute(query, (listener.number,)).fetchall()
        return {(trial, system): rating for trial, system, rating in rows}

    def listeners(self) -> list[Listener]:
        with self._lock:
            rows = self._connection.execute("SELECT number, name FROM listeners ORDER BY number").fetchall()
        return [self._listener(*row) for row in rows]

    def ratings(self) -> list[Rating]:
        with self._lock:
            query = "SELECT listener, trial, system, rating FROM ratings ORDER BY listener, trial, system"
            rows = self._connection.execute(query).fetchall()
        return [Rating(self.code("label", number), *rest) for number, *rest in rows]

    def choose(self, listener: Listener, choice: Choice) -> tuple[str, bool]:
        """Store a choice unless there is one; returns what is chosen, and whether that is new."""
        with self._transaction() as db:
            new = db.execute(
                "INSERT OR IGNORE INTO choices (listener, trial, first, second, x, chosen) VALUES (?, ?, ?, ?, ?, ?)",
                (listener.number, *choice[1:]),
            ).rowcount
            query = "SELECT chosen FROM choices WHERE (listener, trial, first, second) = (?, ?, ?, ?)"
            return str(db.execute(query, (listener.number, *choice[1:4])).fetchone()[0]), new == 1

    def choices(self, listener: Listener | None = None) -> list[Choice]:
        """Everyone's, or one listener's."""
        own = (listener.number,) if listener else ()
        with self._lock:
            query = (
                "SELECT listener, trial, first, second, x, chosen FROM choices "
                f"{'WHERE listener = ? ' if own else ''}ORDER BY listener, trial, first, second"
            )
            rows = self._connection.execute(query, own).fetchall()
        return [Choice(self.code("label", number), *rest) for number, *rest in rows]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
