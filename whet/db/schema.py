"""The tables, as a list of migrations: version n is what the first n of them make.

A migration is never changed once it has been released; a new one is added at the end.
"""

from __future__ import annotations

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"

_FIRST = (
    """CREATE TABLE target (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        description TEXT NOT NULL)""",
    """CREATE TABLE workload (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        class_key TEXT NOT NULL,
        text TEXT NOT NULL)""",
    "CREATE INDEX workload_class ON workload (class_key)",
    """CREATE TABLE record (
        id INTEGER PRIMARY KEY,
        workload INTEGER NOT NULL REFERENCES workload,
        target INTEGER NOT NULL REFERENCES target,
        threads INTEGER NOT NULL,
        sketch TEXT NOT NULL,
        trace TEXT NOT NULL,
        holes TEXT NOT NULL,
        UNIQUE (workload, target, threads, sketch, trace, holes))""",
    """CREATE TABLE measurement (
        id INTEGER PRIMARY KEY,
        record INTEGER NOT NULL REFERENCES record,
        outcome TEXT NOT NULL,
        seconds REAL,
        samples TEXT NOT NULL,
        message TEXT NOT NULL,
        build_ms REAL NOT NULL,
        code_bytes INTEGER NOT NULL,
        checked INTEGER NOT NULL,
        seed INTEGER NOT NULL,
        version TEXT NOT NULL,
        at REAL NOT NULL,
        CHECK ((outcome = 'ok') = (seconds IS NOT NULL AND seconds > 0)),
        UNIQUE (record, at, outcome, samples))""",
    *(
        f"""CREATE TRIGGER measurement_no_{verb.lower()} BEFORE {verb} ON measurement
            BEGIN SELECT RAISE(ABORT, 'measurements are only ever added'); END"""
        for verb in ("UPDATE", "DELETE")
    ),
    """CREATE TABLE model (
        id INTEGER PRIMARY KEY,
        target INTEGER NOT NULL REFERENCES target,
        kind TEXT NOT NULL,
        data BLOB NOT NULL,
        version TEXT NOT NULL,
        at REAL NOT NULL)""",
)

# The latest measurement of a record speaks for it, so that a winner that was lucky once does
# not stay one; a record that ever gave a wrong answer never counts.  What was promoted after a
# comparison side by side outranks what only looks faster.
_BEST = (
    """CREATE TABLE promotion (
        id INTEGER PRIMARY KEY,
        record INTEGER NOT NULL REFERENCES record,
        at REAL NOT NULL)""",
    """CREATE VIEW latest AS
        SELECT m.* FROM measurement m
        WHERE m.id = (SELECT max(id) FROM measurement WHERE record = m.record)
          AND m.outcome = 'ok'
          AND NOT EXISTS (SELECT 1 FROM measurement
                          WHERE record = m.record AND outcome = 'wrong_answer')""",
    """CREATE VIEW best AS
        SELECT workload, target, threads, record, measurement, seconds FROM (
            SELECT r.workload, r.target, r.threads, r.id AS record, l.id AS measurement, l.seconds,
                   row_number() OVER (
                       PARTITION BY r.workload, r.target, r.threads
                       ORDER BY (SELECT max(p.id) FROM promotion p
                                 WHERE p.record = r.id) DESC NULLS LAST, l.seconds, r.id) AS place
            FROM record r JOIN latest l ON l.record = r.id)
        WHERE place = 1""",
    "CREATE INDEX measurement_record ON measurement (record)",
    "CREATE INDEX promotion_record ON promotion (record)",
)

# What the analytic model expected: how wrong it was about one task says how wrong it is about
# similar ones.
_ESTIMATES = ("ALTER TABLE measurement ADD COLUMN estimate REAL",)

# Candidates inside networks.  They are those of the table of records, but may have no measurement:
# a kernel that was chosen for what is around it says nothing about the best one elsewhere.
_NETWORKS = (
    """CREATE TABLE network_trial (
        id INTEGER PRIMARY KEY,
        network TEXT NOT NULL,
        beside TEXT NOT NULL,
        record INTEGER NOT NULL REFERENCES record,
        outcome TEXT NOT NULL,
        ratio REAL,
        kept INTEGER NOT NULL,
        version TEXT NOT NULL,
        at REAL NOT NULL,
        CHECK ((outcome = 'ok') = (ratio IS NOT NULL AND ratio > 0)),
        CHECK (kept = 0 OR outcome = 'ok'))""",
    "CREATE INDEX network_trial_network ON network_trial (network)",
    "CREATE INDEX network_trial_record ON network_trial (record)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _BEST, _ESTIMATES, _NETWORKS)
