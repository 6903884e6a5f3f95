"""Log lines of other tuners, told by their shape so that they can be refused by name.

Their schedules are steps of another compiler over another program: there is nothing in them
that could be used here.

    {"i": [[workload, target, ...], [[], steps]], "r": [costs, error, total, time], "v": "v0.6"}
    {"input": [target, task, args, {}], "config": {...}, "result": [...], "version": 0.2}
    [0, [[trace, decisions], run_secs, target, args]]
"""

from __future__ import annotations

from typing import Any


def foreign_origin(line: Any) -> str | None:
    """The tuner that wrote a parsed line; None if it is none of those that are known."""
    match line:
        case {"i": [list(), list()], "r": list()}:
            return "TVM auto_scheduler (Ansor)"
        case {"input": list(), "config": dict(), "result": list()}:
            return "TVM AutoTVM"
        case {"input": list(), "config": dict(), "r": list()} | {"in": _, "c": _, "r": _}:
            return "TVM AutoTVM"
        case [int(), [list(), *_]] | [str(), str()]:
            return "TVM MetaSchedule"
    return None
