"""Settings from the environment."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

import pytest

from whet.core.config import Config, knobs, read_config
from whet.core.errors import UsageError


def test_defaults_need_no_environment() -> None:
    config = read_config({"HOME": "/nowhere"})
    assert config == Config()
    assert config.cache.enabled
    assert config.threads == 0


def test_variables_reach_their_knobs() -> None:
    config = read_config(
        {"WHET_THREADS": "3", "WHET_CACHE_DIR": "/a/b", "WHET_CACHE_ENABLED": "No",
         "WHET_TARGET": "x86-64-v3"}
    )  # fmt: skip
    assert config.target == "x86-64-v3"
    assert config.threads == 3
    assert config.cache.dir == Path("/a/b")
    assert not config.cache.enabled


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("WHET_THREADS", "many", "WH1002 WHET_THREADS='many' is not a whole number"),
        ("WHET_THREADS", "-1", "WH1002 WHET_THREADS='-1' is less than 0"),
        ("WHET_CACHE_ENABLED", "perhaps", "WH1002 WHET_CACHE_ENABLED='perhaps' is not one of"),
        ("WHET_CACHE_DIR", "a/b", "WH1002 WHET_CACHE_DIR='a/b' is not an absolute path"),
        ("WHET_THREAD", "1", "WH1002 no setting is named WHET_THREAD"),
    ],
)
def test_bad_values_are_refused(variable: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_config({variable: value})


def test_every_knob_explains_itself() -> None:
    assert [k.variable for k in knobs()][:9] == [
        "WHET_THREADS",
        "WHET_PIN",
        "WHET_TARGET",
        "WHET_PRECISION",
        "WHET_CHECK_ACCESSES",
        "WHET_REWRITE_SECONDS",
        "WHET_CALIBRATE",
        "WHET_STRICT",
        "WHET_CACHE_ENABLED",
    ]
    shown = {k.variable: (k.type, k.default) for k in knobs()}
    assert shown["WHET_CALIBRATE"] == ("bool", "1")
    assert shown["WHET_CACHE_MEGABYTES"] == ("int", "5000")
    assert shown["WHET_CACHE_DIR"] == ("Path", "`$XDG_CACHE_HOME/whet`, else `~/.cache/whet`")
    assert "WHET_DB_PATH" in [k.variable for k in knobs()]
    assert all(len(k.help) > 10 for k in knobs())


def test_folders_follow_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "relative/paths/do/not/count")
    monkeypatch.setenv("HOME", "/home/ada")
    config = read_config({})
    assert config.cache.dir == Path("/home/ada/.cache/whet")
    assert config.db.path == Path("/home/ada/.local/share/whet/records.db")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert read_config({}).cache.dir == Path("/var/cache/whet")


@pytest.mark.parametrize("home", [None, "not/absolute"])
def test_a_user_without_a_home_has_no_folders(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    """A number without an entry among the users, as containers have them."""

    def nobody(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    if home:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    config = read_config({})
    assert config.cache.dir is None
    assert config.db.path is None
    with pytest.raises(UsageError, match="WHET_DB_PATH='~nobody1/x' names the home of a user who"):
        read_config({"WHET_DB_PATH": "~nobody1/x"})
