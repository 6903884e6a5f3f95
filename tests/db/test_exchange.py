"""Records as lines of JSON, and lines that are something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.db.samples import record
from whet.db.exchange import RefusedLine, export_lines, import_lines, parse_line
from whet.db.store import Database

AUTOTVM = """
{"input": ["cuda -keys=cuda,gpu -arch=sm_75 -max_num_threads=1024 -model=unknown -
thread_warp_size=32", "conv2d_nchw.cuda", [["TENSOR", [1, 256, 14, 14], "float32"],
["TENSOR", [512, 256, 1, 1], "float32"], [2, 2], [0, 0, 0, 0], [1, 1], "float32"], {}],
"config": {"index": 11312, "code_hash": null, "entity": [["tile_f", "sp", [-1, 4, 32,
2]], ["auto_unroll_max_step", "ot", 0]]}, "result":
[[0.00010343405303678358], 0, 1.5358951091766357, 1658184289.7048202], "version": 0.2,
"tvm_version": "0.9.dev0"}
""".replace("\n", "")
ANSOR = (
    '{"i": [["[\\"matmul\\", 512]", "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 1], '
    '[[], [["SP", 2, 0, 512, [1, 1, 8], 1], ["AN", 1, 0, 3]]]], '
    '"r": [[0.002], 0, 1.1, 1600000000], "v": "v0.6"}'
)
METASCHEDULE = '[0, [[[["GetBlock", [], ["b", "main"], ["b0"]]], []], [0.001], {}, []]]'


def open_database(folder: Path, name: str) -> Database:
    return Database(folder / name)


def test_exported_records_can_be_imported(tmp_path: Path) -> None:
    with open_database(tmp_path, "a.db") as source:
        source.add([record(1, trace="[1]"), record(2, None), record(1, 3e-3, at=9.0)])
        lines = list(export_lines(source))
    with open_database(tmp_path, "b.db") as target:
        report = import_lines(target, ["", *lines])
        assert (report.added, report.known, dict(report.refused)) == (3, 0, {})
        assert list(export_lines(target)) == lines
        again = import_lines(target, lines)
        assert (again.added, again.known) == (0, 3)


def test_foreign_lines_are_counted_and_refused(tmp_path: Path) -> None:
    with open_database(tmp_path, "a.db") as database:
        database.add([record(1)])
        own = list(export_lines(database))
        lines = [ANSOR, AUTOTVM, *own, ANSOR, METASCHEDULE, "{}", "12", "not json", '{"whet": 99}']
        report = import_lines(database, lines)
    assert (report.added, report.known) == (0, 1)
    text = "\n".join(report.lines())
    assert "2 lines refused: written by TVM auto_scheduler (Ansor)" in text
    assert "1 lines refused: written by TVM AutoTVM" in text
    assert "1 lines refused: written by TVM MetaSchedule" in text
    assert "2 lines refused: not a record of whet" in text
    assert "1 lines refused: not JSON" in text
    assert "1 lines refused: format 99" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", {}),
        ("target", {"name": "x"}),
        ("threads", "2"),
        ("threads", True),
        ("holes", {"mr": 1.5}),
        ("holes", [1]),
        ("outcome", "splendid"),
        ("outcome", "crash"),
        ("samples", []),
        ("samples", [0.0]),
        ("samples", [-1.0]),
        ("samples", ["1"]),
        ("at", None),
        ("at", 10**400),
        ("build_ms", float("inf")),
        ("threads", 0),
        ("threads", 1 << 63),
        ("seed", -(1 << 70)),
        ("holes", {"mr": 1 << 64}),
        ("samples", [10**400]),
        ("sketch", "\ud800"),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, field: str, value: Any) -> None:
    with open_database(tmp_path, "a.db") as database:
        database.add([record(1)])
        (line,) = export_lines(database)
    fields = json.loads(line)
    parse_line(json.dumps(fields))
    with pytest.raises(RefusedLine, match="damaged record"):
        parse_line(json.dumps({**fields, field: value}))
    del fields[field]
    with pytest.raises(RefusedLine, match=f"'{field}' is missing"):
        parse_line(json.dumps(fields))


def test_nan_times_are_refused(tmp_path: Path) -> None:
    with open_database(tmp_path, "a.db") as database:
        database.add([record(1)])
        (line,) = export_lines(database)
    fields = json.loads(line)
    with pytest.raises(RefusedLine, match="'samples' do not fit"):
        parse_line(json.dumps({**fields, "samples": [float("nan")]}))
