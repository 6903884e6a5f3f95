"""Artifacts: a compiled model as one file with no code in it.

    manifest.json         versions, sizes and hashes of the members, the signature, options,
                          and the schedules of a tuned model
    graph.txt             the graph as text
    weights.safetensors   constants of the graph, and the values that guards compare with

A file is read only if it is whole: every byte is covered by a hash, a checksum or the canonical
form of the archive, sizes are bounded before anything is read, and what the manifest says of
types must agree with the graph (which the caller of `read_artifact` parses).
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.dtypes import parse_dtype
from whet.core.errors import ArtifactError, UsageError, WhetError, check
from whet.core.precision import STRICT
from whet.core.types import MAX_ELEMENTS, Array
from whet.runtime import safetensors
from whet.runtime.archive import Chunk, Member, checksum, read_archive, size_of, write_archive
from whet.runtime.damage import refuse, require
from whet.runtime.ports import Port, Structure, leaves
from whet.runtime.schedules import StoredSchedule, decode_schedules, encode_schedules
from whet.runtime.signature import Signature, TensorSpec
from whet.runtime.strict_json import parse_json_object

SCHEMA = 2
MANIFEST, GRAPH, WEIGHTS = "manifest.json", "graph.txt", "weights.safetensors"
MAX_MANIFEST_BYTES = 16 << 20
MAX_GRAPH_BYTES = 8 << 20
"""Some 50,000 nodes; parsing takes about a hundred bytes of memory per byte of text."""
MAX_STRUCTURE_DEPTH = 16
_GUARD = "guard:"
_CONSTANT = "constant:"


@dataclass(frozen=True)
class Artifact:
    """The content of an artifact."""

    signature: Signature
    graph_text: str
    constants: Mapping[str, Array]
    target: str
    numerics: str
    whet_version: str
    schedules: tuple[StoredSchedule, ...] = ()
    """What was searched for; nothing where the analytic model decides."""
    precision: str = STRICT


def write_artifact(path: str | os.PathLike[str], artifact: Artifact) -> None:
    """Writes the artifact; the file appears whole or not at all."""
    guards = {_GUARD + name: array for name, array in artifact.signature.guards.items()}
    constants = {_CONSTANT + name: array for name, array in artifact.constants.items()}
    text = artifact.graph_text.encode()
    check(len(text) <= MAX_GRAPH_BYTES, "WH3006",
          f"the graph's text has {len(text)} bytes, more than an artifact may hold",
          kind=UsageError)  # fmt: skip
    members: list[tuple[str, Sequence[Chunk]]] = [
        (GRAPH, [text]),
        (WEIGHTS, safetensors.encode({**constants, **guards})),
    ]
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "whet": artifact.whet_version,
        "target": artifact.target,
        "numerics": artifact.numerics,
        "members": {name: _describe(chunks) for name, chunks in members},
        **_encode_signature(artifact.signature),
    }
    if artifact.precision != STRICT:
        manifest["precision"] = artifact.precision
    if artifact.schedules:
        manifest["schedules"] = encode_schedules(artifact.schedules)
    header = json.dumps(manifest, indent=1, sort_keys=True).encode()
    write_archive(path, [(MANIFEST, [header]), *members])


def read_artifact(path: str | os.PathLike[str]) -> Artifact:
    """The artifact in the file; `WH3001` if it is damaged, `WH3002` if it is of another kind."""
    members = read_archive(path, (MANIFEST, GRAPH, WEIGHTS))
    require(MANIFEST in members, "the artifact has no manifest")
    manifest = _read_manifest(members[MANIFEST])
    described: Any = manifest.get("members")
    stored = {name: m for name, m in members.items() if name != MANIFEST}
    require(
        isinstance(described, dict) and set(described) == set(stored) == {GRAPH, WEIGHTS},
        "the artifact's members are not those of its manifest",
    )
    require(
        stored[GRAPH].entry.size <= MAX_GRAPH_BYTES,
        f"the artifact's graph is larger than {MAX_GRAPH_BYTES} bytes",
    )
    for name, member in stored.items():
        record = {"size": member.entry.size, "crc32": member.entry.crc,
                  "sha256": hashlib.sha256(member.data).hexdigest()}  # fmt: skip
        require(described[name] == record, f"'{name}' in the artifact is not what was written")
    try:
        graph_text = str(bytes(stored[GRAPH].data), "utf-8")
    except UnicodeDecodeError:
        refuse("the artifact's graph is not text")
    arrays = safetensors.decode(stored[WEIGHTS].data)
    strange = [n for n in arrays if not n.startswith((_GUARD, _CONSTANT))]
    require(not strange, f"unknown arrays in the artifact: {strange[:3]}")
    guards = {n.removeprefix(_GUARD): a for n, a in arrays.items() if n.startswith(_GUARD)}
    return Artifact(
        _decode_signature(manifest, guards),
        graph_text,
        {n.removeprefix(_CONSTANT): a for n, a in arrays.items() if n.startswith(_CONSTANT)},
        _text(manifest, "target"),
        _text(manifest, "numerics"),
        _text(manifest, "whet"),
        decode_schedules(manifest.get("schedules", [])),
        _text(manifest, "precision") if "precision" in manifest else STRICT,
    )


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether the file looks like an artifact (a zip file) rather than a model."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"PK\3\4"
    except (OSError, ValueError):
        return False


def _describe(chunks: Sequence[Chunk]) -> dict[str, Any]:
    state = hashlib.sha256()
    for chunk in chunks:
        state.update(chunk)
    return {"size": size_of(chunks), "crc32": checksum(chunks), "sha256": state.hexdigest()}


def _read_manifest(member: Member) -> dict[str, Any]:
    require(
        member.entry.size <= MAX_MANIFEST_BYTES,
        f"the artifact's manifest is larger than {MAX_MANIFEST_BYTES} bytes",
    )
    require(zlib.crc32(member.data) == member.entry.crc, "the artifact's manifest is damaged")
    manifest = parse_json_object(member.data, "the artifact's manifest")
    check(manifest.get("schema") == SCHEMA, "WH3002",
          f"the artifact has schema {str(manifest.get('schema'))[:40]}, "
          f"this version of whet reads schema {SCHEMA}",
          hint="compile the model again", kind=ArtifactError)  # fmt: skip
    return manifest


def _text(manifest: Mapping[str, Any], key: str) -> str:
    value = manifest.get(key)
    if not isinstance(value, str):
        refuse(f"the artifact's manifest has no '{key}'")
    return value


# ---------------------------------------------------------------------------------- signatures
def _encode_signature(signature: Signature) -> dict[str, Any]:
    def tensors(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)} for s in specs]

    def ports(given: Sequence[Port]) -> list[dict[str, Any]]:
        return [{"name": p.name, "structure": p.structure} for p in given]

    return {
        "inputs": tensors(signature.inputs),
        "outputs": tensors(signature.outputs),
        "arguments": ports(signature.arguments),
        "results": ports(signature.results),
    }


def _decode_signature(manifest: Mapping[str, Any], guards: Mapping[str, Array]) -> Signature:
    try:
        inputs = tuple(map(_decode_tensor, manifest["inputs"]))
        outputs = tuple(map(_decode_tensor, manifest["outputs"]))
        arguments = _decode_ports(manifest["arguments"], len(inputs))
        results = _decode_ports(manifest["results"], len(outputs))
    except (KeyError, TypeError, ValueError, WhetError):
        refuse("the artifact's signature is malformed")
    types = {s.name: (s.dtype.numpy, s.shape) for s in inputs}
    sound = all(None not in s.shape for s in inputs) and all(
        types.get(name) == (guard.dtype, guard.shape) for name, guard in guards.items()
    )
    require(sound, "the artifact's signature is inconsistent")
    return Signature(arguments, inputs, results, outputs, guards)


def _decode_tensor(record: Any) -> TensorSpec:
    name, shape = record["name"], record["shape"]
    if not isinstance(name, str) or not isinstance(shape, list):
        raise TypeError(record)
    if any(d is not None and not (type(d) is int and 0 <= d <= MAX_ELEMENTS) for d in shape):
        raise ValueError(shape)
    return TensorSpec(name, parse_dtype(record["dtype"]), tuple(shape))


def _decode_ports(records: Any, count: int) -> tuple[Port, ...]:
    """The ports, which must use each of `count` tensors exactly once and have distinct names."""
    ports = tuple(Port(str(r["name"]), _decode_structure(r["structure"])) for r in records)
    used = [n for port in ports for n in leaves(port.structure)]
    if sorted(used) != list(range(count)) or len({p.name for p in ports}) != len(ports):
        raise ValueError(records)
    return ports


def _decode_structure(value: Any, depth: int = 0) -> Structure:
    if value is None or type(value) is int:
        found: int | None = value
        return found
    if not isinstance(value, list) or depth >= MAX_STRUCTURE_DEPTH:
        raise TypeError(value)
    return tuple(_decode_structure(item, depth + 1) for item in value)
