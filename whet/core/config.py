"""Settings: one frozen tree of typed knobs, read once from the environment.

A knob is a dataclass field with a default and a help text.  Its environment variable is
WHET_ followed by its path in the tree: `Config.cache.dir` is WHET_CACHE_DIR.  Code receives
the `Config` (or the part that concerns it) as an argument and never reads the environment.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError, fail

PREFIX = "WHET_"


def _user_folder(variable: str, *below_home: str) -> Path | None:
    """The folder that a variable of the XDG specification names, or else one in the user's home;
    None for a user without a home, such as a number in a container."""
    given = Path(os.environ.get(variable, ""))
    if given.is_absolute():
        return given
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home.joinpath(*below_home) if home.is_absolute() else None


def _default_cache_dir() -> Path | None:
    base = _user_folder("XDG_CACHE_HOME", ".cache")
    return base and base / "whet"


def _default_records_path() -> Path | None:
    base = _user_folder("XDG_DATA_HOME", ".local", "share")
    return base and base / "whet" / "records.db"


def _knob(default: Any, help: str, *, shown: str = "", **limits: Any) -> Any:
    """A field with a help text and, for numbers, a `low` limit; `default` may be a function,
    and `shown` then says what it gives."""
    plain = int(default) if isinstance(default, bool) else default
    metadata = {"help": help, "shown": shown or str(plain), **limits}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Files that are kept between runs."""

    enabled: bool = _knob(True, "keep measured facts and compiled code between runs")
    dir: Path | None = _knob(
        _default_cache_dir,
        "folder of the cache, which only its owner may read; in a folder that is there already "
        "and holds something else, the cache is the subfolder `whet-` with the user's number",
        shown="`$XDG_CACHE_HOME/whet`, else `~/.cache/whet`",
    )
    megabytes: int = _knob(
        5000,
        "the most that the cache may hold; what was not used for longest goes first; "
        "0 means no limit",
        low=0,
    )


@dataclass(frozen=True, slots=True)
class RecordsConfig:
    """The database of what tuning has found out."""

    path: Path | None = _knob(
        _default_records_path,
        "database of measured kernels",
        shown="`$XDG_DATA_HOME/whet/records.db`, else `~/.local/share/whet/records.db`",
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    threads: int = _knob(
        0,
        "threads of a compiled model; 0 means one per core that the process may use, by its "
        "affinity and a container's quota",
        low=0,
    )
    pin: bool = _knob(
        False,
        "every worker thread stays on a core of its own; for a process that shares its cores with "
        "no other",
    )
    target: str = _knob(
        "",
        "processor to build for: cpu (this machine) or the name of a preset; "
        "if empty, the one that an artifact was made for, else cpu",
        shown="empty",
    )
    precision: str = _knob(
        "",
        "what numbers of single precision may be computed with on a target that has a choice: "
        "fp32, fp32x3, tf32, fp16 or bf16; if empty, fp32",
        shown="empty",
    )
    check_accesses: bool = _knob(
        False, "native code checks every access and ends the process at a wrong one; slow"
    )
    rewrite_seconds: int = _knob(
        2,
        "seconds of an ordinary core to search for a cheaper graph when a model is compiled for "
        "the first time; 0 compiles it as it is written",
        low=0,
    )
    calibrate: bool = _knob(
        True,
        "measure this machine at the first use, to choose kernels by; else assume a typical one",
    )
    strict: bool = _knob(
        False,
        "an unforeseen error while a model is compiled is raised as it is, instead of running the "
        "model in the interpreter",
    )
    cache: CacheConfig = field(default_factory=CacheConfig)
    db: RecordsConfig = field(default_factory=RecordsConfig)


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting as documentation shows it."""

    variable: str
    type: str
    default: str
    help: str


def knobs(cls: type = Config, prefix: str = PREFIX) -> Iterator[Knob]:
    """All settings, in order of definition."""
    for name, declared, metadata in _fields(cls):
        if dataclasses.is_dataclass(declared):
            yield from knobs(typing.cast(type, declared), f"{prefix}{name.upper()}_")
        else:
            kind = _given_type(declared).__name__
            yield Knob(f"{prefix}{name.upper()}", kind, metadata["shown"], metadata["help"])


def read_config(environ: Mapping[str, str]) -> Config:
    """The configuration that these environment variables describe.

    Raises `WH1002` for a value that cannot be read and for a variable that starts with WHET_
    but names no knob: a misspelt setting must not be ignored in silence.
    """
    given = {k: v for k, v in environ.items() if k.startswith(PREFIX)}
    known = [k.variable for k in knobs()]
    unknown = sorted(set(given) - set(known))
    if unknown:
        fail("WH1002", f"no setting is named {', '.join(unknown)}",
             hint=f"settings are {', '.join(known)}", kind=UsageError)  # fmt: skip
    return typing.cast(Config, _read(Config, PREFIX, given))


@functools.cache
def process_config() -> Config:
    """The configuration of this process, read at the first call."""
    return read_config(os.environ)


def _fields(cls: type) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Name, type and metadata of each field."""
    hints = typing.get_type_hints(cls)
    for f in dataclasses.fields(cls):
        yield f.name, hints[f.name], f.metadata


def _given_type(declared: Any) -> type:
    """The type that a value from outside has: None is for what nothing names."""
    kinds = [t for t in typing.get_args(declared) or (declared,) if t is not type(None)]
    return typing.cast(type, kinds[0])


def _read(cls: type, prefix: str, given: Mapping[str, str]) -> Any:
    values: dict[str, Any] = {}
    for name, declared, metadata in _fields(cls):
        variable = f"{prefix}{name.upper()}"
        if dataclasses.is_dataclass(declared):
            values[name] = _read(typing.cast(type, declared), f"{variable}_", given)
        elif variable in given:
            values[name] = _parse(variable, given[variable], _given_type(declared), metadata)
    return cls(**values)


_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _parse(variable: str, text: str, declared: type, metadata: Mapping[str, Any]) -> Any:
    """The text as a value of the declared type."""
    if declared is bool:
        if text.lower() not in _BOOLEANS:
            _refuse(variable, text, "is not one of 1, true, yes, 0, false, no")
        return _BOOLEANS[text.lower()]
    if declared is Path:
        try:
            path = Path(text).expanduser()
        except RuntimeError:
            _refuse(variable, text, "names the home of a user who has none")
        if not path.is_absolute():
            _refuse(variable, text, "is not an absolute path")
        return path
    if declared is str:
        return text
    assert declared is int, declared
    try:
        number = int(text)
    except ValueError:
        _refuse(variable, text, "is not a whole number")
    if number < metadata["low"]:
        _refuse(variable, text, f"is less than {metadata['low']}")
    return number


def _refuse(variable: str, text: str, problem: str) -> typing.NoReturn:
    fail("WH1002", f"{variable}='{text}' {problem}", kind=UsageError)
