"""The file cache: private, atomic, and suspicious of damage."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.errors import UsageError


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(CacheConfig(dir=tmp_path / "whet"))


def test_what_was_put_is_found(cache: FileCache) -> None:
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"one")
    cache.put("kind", "key", b"two")
    assert cache.get("kind", "key") == b"two"
    assert cache.get("kind", "other") is None
    assert cache.get("other", "key") is None


def test_only_the_owner_may_enter(cache: FileCache) -> None:
    cache.put("kind", "key", b"data")
    assert stat.S_IMODE(cache.config.dir.stat().st_mode) == 0o700
    cache.config.dir.chmod(0o755)
    assert cache.get("kind", "key") == b"data"
    assert stat.S_IMODE(cache.config.dir.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_refused(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("kind", "key", b"data")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UsageError, match=r"WH1002 the cache folder .* belongs to another user"):
        cache.get("kind", "key")


@settings(max_examples=50, deadline=None)
@given(data=st.binary(min_size=1), position=st.integers(0), flip=st.integers(1, 255))
def test_a_damaged_entry_counts_as_absent(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, position: int, flip: int
) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path_factory.mktemp("cache")))
    cache.put("kind", "key", data)
    path = cache.config.dir / "kind" / "key"
    stored = bytearray(path.read_bytes())
    position %= len(stored)
    path.write_bytes(stored[:position])
    assert cache.get("kind", "key") is None
    stored[position] ^= flip
    path.write_bytes(stored)
    assert cache.get("kind", "key") is None


def test_a_failed_write_leaves_nothing_behind(
    cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("kind", "key", b"old")

    def full(*args: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.put("kind", "key", b"new")
    assert cache.get("kind", "key") == b"old"
    assert [p.name for p in (cache.config.dir / "kind").iterdir()] == ["key"]


def test_a_disabled_cache_stores_nothing(tmp_path: Path) -> None:
    cache = FileCache(CacheConfig(enabled=False, dir=tmp_path / "whet"))
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") is None
    assert not cache.config.dir.exists()


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = FileCache(CacheConfig(dir=tmp_path / "file" / "whet"))
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") is None
