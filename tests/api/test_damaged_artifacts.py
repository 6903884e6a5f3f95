"""Damaged and hostile artifacts: each is refused with an error of whet's own.

All of them are loaded in one process with little memory and time, so a bomb or a hang fails.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import whet
from whet.runtime import archive, artifact as artifacts, safetensors

LOADER = """
import resource, sys
import whet
from whet.core.errors import ArtifactError
import whet.api
limit = 1 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for path in sys.argv[1:]:
    try:
        whet.load(path)
    except ArtifactError as error:
        print(error.code)
        continue
    print("loaded", path)
"""

Members = dict[str, bytes]
Damage = Callable[[bytes], bytes]


def rebuilt(change: Callable[[Members], Any]) -> Damage:
    """An artifact that is whole as an archive, with changed members and matching hashes."""

    def damage(data: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = {name: file.read(name) for name in file.namelist()}
        change(members)
        manifest = members.get(artifacts.MANIFEST)
        if manifest is not None and manifest.startswith(b"{\n"):
            content = json.loads(manifest)
            content["members"] = {
                n: artifacts._describe([m]) for n, m in members.items() if n != artifacts.MANIFEST
            }
            members[artifacts.MANIFEST] = json.dumps(content, indent=1, sort_keys=True).encode()
        return written(list(members.items()))

    return damage


def written(members: list[tuple[str, bytes]]) -> bytes:
    """The archive of these members, whatever they are, in the canonical form."""
    layout = archive.plan([archive.Entry(n, len(m), archive.checksum([m])) for n, m in members])
    pieces = [h + m for (_, h), (_, m) in zip(layout.headers, members, strict=True)]
    return b"".join(pieces) + layout.directory[1]


def manifest(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def edit(members: Members) -> None:
        content = json.loads(members[artifacts.MANIFEST])
        change(content)
        members[artifacts.MANIFEST] = json.dumps(content, indent=1).encode()

    return rebuilt(edit)


def weights(change: Callable[[dict[str, Any]], Any], body: bytes | None = None) -> Damage:
    """Edits the header of the weights, and replaces their data if `body` is given."""

    def edit(members: Members) -> None:
        data = members[artifacts.WEIGHTS]
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        rest = data[8 + size :] if body is None else body
        members[artifacts.WEIGHTS] = len(text).to_bytes(8, "little") + text + rest

    return rebuilt(edit)


def graph(old: str, new: str) -> Damage:
    def edit(members: Members) -> None:
        text = members[artifacts.GRAPH].decode()
        assert old in text
        members[artifacts.GRAPH] = text.replace(old, new, 1).encode()

    return rebuilt(edit)


def rezipped(
    compression: int = zipfile.ZIP_STORED, extra: dict[str, bytes] | None = None, mode: int = 0
) -> Damage:
    """The same members as an ordinary zip tool writes them."""

    def damage(data: bytes) -> bytes:
        out = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(data)) as old,
            zipfile.ZipFile(out, "w", compression) as new,
        ):
            for name in old.namelist():
                new.writestr(name, old.read(name))
            for name, content in (extra or {}).items():
                info = zipfile.ZipInfo(name)
                info.external_attr = mode << 16
                new.writestr(info, content)
        return out.getvalue()

    return damage


def flipped(position: float) -> Damage:
    """One bit changed at a relative position."""

    def damage(data: bytes) -> bytes:
        at = min(int(position * len(data)), len(data) - 1)
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        return bytes(changed)

    return damage


def first_record(header: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = header[next(n for n in header if n != "__metadata__")]
    return record


def bomb_header(members: Members) -> None:
    members[artifacts.WEIGHTS] = struct.pack("<Q", 1 << 62) + b"{}"


def deep_json(members: Members) -> None:
    members[artifacts.MANIFEST] = b'{"a":' * 200_000 + b"1" + b"}" * 200_000


def long_number(members: Members) -> None:
    members[artifacts.MANIFEST] = b'{"schema": ' + b"1" * 100_000 + b"}"


DAMAGES: dict[str, Damage] = {
    **{f"bit {n} of 16": flipped(n / 16) for n in range(17)},
    **{f"cut to {n} eighths": lambda d, n=n: d[: len(d) * n // 8] for n in range(8)},  # type: ignore[misc]
    "one byte short": lambda d: d[:-1],
    "one byte more": lambda d: d + b"\0",
    "bytes in front": lambda d: b"\0" * 64 + d,
    "twice": lambda d: d + d,
    "not a zip": lambda d: b"\x08\x07" + d[2:],
    "text": lambda d: b"hello " * 100,
    "compressed": rezipped(zipfile.ZIP_DEFLATED),
    "zipped by another tool": rezipped(),
    "bomb": rezipped(zipfile.ZIP_DEFLATED, {"bomb": b"\0" * (64 << 20)}),
    "path outside": rezipped(extra={"../evil": b"x"}),
    "absolute path": rezipped(extra={"/etc/evil": b"x"}),
    "link": rezipped(extra={"link": b"/etc/passwd"}, mode=0o120777),
    "path outside, canonical": lambda d: written([("../evil", b"x")]),
    "unknown member": rebuilt(lambda m: m.update(extra=b"x")),
    "renamed member": rebuilt(lambda m: m.update({"graph.TXT": m.pop(artifacts.GRAPH)})),
    "no graph": rebuilt(lambda m: m.pop(artifacts.GRAPH)),
    "no manifest": rebuilt(lambda m: m.pop(artifacts.MANIFEST)),
    "duplicate member": lambda d: written([(artifacts.GRAPH, b"a"), (artifacts.GRAPH, b"b")]),
    "manifest is no JSON": rebuilt(lambda m: m.update({artifacts.MANIFEST: b"\xff{"})),
    "manifest is a list": rebuilt(lambda m: m.update({artifacts.MANIFEST: b"[1]"})),
    "manifest nests deeply": rebuilt(deep_json),
    "manifest has a huge number": rebuilt(long_number),
    "manifest repeats a key": rebuilt(lambda m: m.update({artifacts.MANIFEST: b'{"a":1,"a":2}'})),
    "manifest without inputs": manifest(lambda c: c.pop("inputs")),
    "manifest with other inputs": manifest(lambda c: c["inputs"][0].update(shape=[7, 7])),
    "manifest with a huge shape": manifest(lambda c: c["inputs"][0].update(shape=[1 << 62])),
    "manifest with a fake type": manifest(lambda c: c["inputs"][0].update(dtype="f99")),
    "manifest with a nested port": manifest(lambda c: c["results"][0].update(structure=[[5]])),
    "manifest with a number as name": manifest(lambda c: c.update(target=3)),
    "hash of another file": lambda d: written(
        [(n, b if n != artifacts.GRAPH else b + b"\n") for n, b in unzipped(d)]
    ),
    "weights: header bomb": rebuilt(bomb_header),
    "weights: empty": rebuilt(lambda m: m.update({artifacts.WEIGHTS: b""})),
    "weights: huge shape": weights(lambda h: first_record(h).update(shape=[1 << 40, 1 << 40])),
    "weights: negative shape": weights(lambda h: first_record(h).update(shape=[-1, -4])),
    "weights: many dimensions": weights(lambda h: first_record(h).update(shape=[1] * 100)),
    "weights: outside": weights(lambda h: first_record(h).update(data_offsets=[0, 1 << 50])),
    "weights: reversed": weights(lambda h: first_record(h).update(data_offsets=[8, 0])),
    "weights: fractions": weights(lambda h: first_record(h).update(shape=[1.5])),
    "weights: unknown type": weights(lambda h: first_record(h).update(dtype="C64")),
    "weights: no record": weights(lambda h: h.update({"constant:x": None})),
    "weights: metadata is a list": weights(lambda h: h.update(__metadata__=[1])),
    "weights: hidden data": weights(lambda h: None, body=b"\0" * 4096),
    "weights: other data": weights(lambda h: None, body=b"\1" * (4 * 3 * 40)),
    "weights: unused array": weights(
        lambda h: h.update({"constant:q": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    ),
    "weights: array of another kind": weights(
        lambda h: h.update({"other": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    ),
    "graph: empty": rebuilt(lambda m: m.update({artifacts.GRAPH: b""})),
    "graph: not text": rebuilt(lambda m: m.update({artifacts.GRAPH: b"\xff\xfe"})),
    "graph: too long": rebuilt(lambda m: m.update({artifacts.GRAPH: b" " * (9 << 20)})),
    "graph: undefined value": graph("relu(v0", "relu(v9"),
    "graph: other output": graph('"y"', '"z"'),
    "graph: huge dimension": graph("f32[2, 3]", "f32[2000000000, 3000000000]"),
    "graph: deep nesting": graph("relu(", "relu(a=" + "[" * 10_000),
}  # fmt: skip


def unzipped(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for name in file.namelist():
            yield name, file.read(name)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole artifact: y = relu(x @ w), w large enough to be stored as an array."""
    weight = onnx.numpy_helper.from_array(np.ones((3, 40), np.float32), "w")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x) => (float[2, 40] y) { h = MatMul(x, w)  y = Relu(h) }
    """)
    model.graph.initializer.append(weight)
    path = tmp_path_factory.mktemp("sound") / "m.whet"
    whet.compile(model, note=lambda message: None).save(path)
    return path.read_bytes()


def test_every_damage_is_refused(sound: bytes, tmp_path: Path) -> None:
    assert len(DAMAGES) >= 50
    paths = []
    for n, damage in enumerate(DAMAGES.values()):
        path = tmp_path / f"{n:02}.whet"
        path.write_bytes(damage(sound))
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *paths, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    answers = done.stdout.splitlines()
    wrong = [
        (name, answer)
        for name, answer in zip([*DAMAGES, "folder"], answers)
        if answer not in ("WH3001", "WH3002")
    ]
    assert not wrong, wrong
    assert (done.returncode, len(answers)) == (0, len(DAMAGES) + 1), done.stderr[-2000:]


def test_every_bit_matters(sound: bytes, tmp_path: Path) -> None:
    """No byte of the file can change unnoticed (sampled; the whole file in steps)."""
    path = tmp_path / "m.whet"
    for at in range(0, len(sound), 7):
        changed = bytearray(sound)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        with pytest.raises(whet.WhetError):
            whet.load(path)


def test_the_undamaged_artifact_loads(sound: bytes, tmp_path: Path) -> None:
    for name, change in (("as it is", lambda d: d), ("rebuilt", rebuilt(lambda m: None))):
        path = tmp_path / name
        path.write_bytes(change(sound))
        assert whet.load(path)(np.ones((2, 3), np.float32)).shape == (2, 40)


def test_arrays_come_back_through_the_weights_alone() -> None:
    arrays = {"a": np.arange(3), "b": np.array(True)}
    data = b"".join(bytes(c) for c in safetensors.encode(arrays))
    found = safetensors.decode(memoryview(data))
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].shape == ()
