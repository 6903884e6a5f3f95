"""The file cache: private, atomic, bounded, and suspicious of damage."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from whet.core.cache_folder import TAG, TAG_TEXT
from whet.core.caching import FileCache
from whet.core.config import CacheConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "whet"


@pytest.fixture
def cache(folder: Path) -> FileCache:
    return FileCache(CacheConfig(dir=folder))


def test_what_was_put_is_found(cache: FileCache) -> None:
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"one")
    cache.put("kind", "key", b"two")
    assert cache.get("kind", "key") == b"two"
    assert cache.get("kind", "other") is None
    assert cache.get("other", "key") is None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -------------------------------------------------------------------------- whose folder it is
def test_only_the_owner_may_enter(cache: FileCache, folder: Path) -> None:
    cache.put("kind", "key", b"data")
    assert cache.folder == folder
    assert mode(folder) == 0o700
    folder.chmod(0o755)
    assert cache.get("kind", "key") == b"data"
    assert mode(folder) == 0o700
    assert [mode(p) for p in (folder / "kind").iterdir()] == [0o600]


@pytest.mark.parametrize("access", [0o755, 0o1777])
@pytest.mark.parametrize("content", ["notes.txt", None])
def test_a_folder_for_other_things_is_left_as_it_is(
    tmp_path: Path, access: int, content: str | None
) -> None:
    if content:
        (tmp_path / content).write_text("of the user")
    tmp_path.chmod(access)
    cache = FileCache(CacheConfig(dir=tmp_path))
    assert cache.get("kind", "key") is None
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") == b"data"
    assert mode(tmp_path) == access
    own = tmp_path / f"whet-{os.geteuid()}"
    assert mode(own) == 0o700
    assert {p.name for p in tmp_path.iterdir()} == {own.name, *([content] if content else [])}
    assert cache.folder == own
    cache.clear()
    assert not content or (tmp_path / content).read_text() == "of the user"


def test_a_private_folder_with_files_of_the_user_is_not_filled(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "thesis").write_text("of the user")
    tmp_path.chmod(0o700)
    cache = FileCache(CacheConfig(dir=tmp_path, megabytes=1))
    cache.put("target", "key", bytes(900_000))
    cache.put("target", "other", bytes(900_000))
    assert (tmp_path / "target" / "thesis").exists()
    assert cache.folder == tmp_path / f"whet-{os.geteuid()}"


def test_an_empty_private_folder_becomes_the_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    cache = FileCache(CacheConfig(dir=tmp_path))
    cache.put("kind", "key", b"data")
    assert cache.folder == tmp_path
    assert (tmp_path / TAG).read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")


def test_a_folder_of_another_user_is_not_used(
    cache: FileCache, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("kind", "key", b"data")
    assert cache.problem is None
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache.get("kind", "key") is None
    cache.put("kind", "new", b"data")
    assert cache.problem == f"the cache folder '{folder}' belongs to another user"
    monkeypatch.undo()
    assert cache.get("kind", "new") is None


def test_a_link_in_a_shared_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / f"whet-{os.geteuid()}").symlink_to(elsewhere)
    cache = FileCache(CacheConfig(dir=shared))
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") is None
    assert not list(elsewhere.iterdir())
    assert cache.problem is not None


def test_root_makes_nothing_in_the_home_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `sudo` does where it keeps HOME: the user could not even remove such a folder."""
    real = Path.stat

    def of_another(path: Path, **options: bool) -> os.stat_result:
        fields = list(real(path, **options))
        fields[stat.ST_UID] = 1234
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", of_another)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    cache = FileCache(CacheConfig(dir=tmp_path / ".cache" / "whet"))
    cache.put("kind", "key", b"data")
    assert not (tmp_path / ".cache").exists()
    assert cache.problem == f"the folder '{tmp_path}' belongs to another user"


def test_a_folder_that_cannot_be_closed_is_read_if_others_cannot_write_it(
    cache: FileCache, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache in the read-only file system of a container's image."""
    cache.put("kind", "key", b"data")

    def read_only(*args: object, **folders: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("fchmod", "utime", "rename", "mkdir"):
        monkeypatch.setattr(os, name, read_only)
    folder.chmod(0o755)
    assert cache.get("kind", "key") == b"data"
    cache.put("kind", "new", b"data")
    assert cache.problem == f"'{folder}': Read-only file system"
    folder.chmod(0o777)
    assert cache.get("kind", "key") is None


def test_without_a_home_there_is_no_cache() -> None:
    cache = FileCache(CacheConfig(dir=None))
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") is None
    assert cache.problem == "this user has no home folder"
    assert (cache.folder, cache.entries(), cache.clear()) == (None, [], (0, 0))


# ------------------------------------------------------------------------------------ its size
def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path / "whet", megabytes=1))
    for n, name in enumerate("abcdefghij"):
        cache.put("kind", name, bytes(100_000 - 100))
        os.utime(tmp_path / "whet" / "kind" / name, (n, n))
    assert cache.get("kind", "a") is not None  # used just now
    assert cache.map("kind", "c") is not None
    cache.put("other", "new", bytes(100_000))
    kept = {e.path for e in cache.entries()}
    assert kept == {"other/new", "kind/a", "kind/c", *(f"kind/{name}" for name in "efghij")}


def test_entries_beyond_the_limit_are_not_stored(tmp_path: Path) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path / "whet", megabytes=1))
    cache.put("kind", "small", b"data")
    cache.put("kind", "large", bytes(1_000_001))
    assert [e.path for e in cache.entries()] == ["kind/small"]
    assert cache.problem == "1 MB are more than it may hold (WHET_CACHE_MEGABYTES)"


def test_a_cache_without_limit_keeps_everything(tmp_path: Path) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path / "whet", megabytes=0))
    for n in range(3):
        cache.put("kind", str(n), bytes(1_000_000))
    assert len(cache.entries()) == 3


def test_files_of_a_process_that_died_are_removed(tmp_path: Path) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path / "whet", megabytes=1))
    (tmp_path / "whet").mkdir(mode=0o700)
    (tmp_path / "whet" / TAG).write_bytes(TAG_TEXT)
    (tmp_path / "whet" / "kind").mkdir()
    for name, age in (("old", 2 * 86_400), ("current", 10)):
        path = tmp_path / "whet" / "kind" / f".new-{name}"
        path.write_bytes(b"half of an en")
        os.utime(path, (time.time() - age,) * 2)
    cache.put("kind", "key", b"data")
    assert {e.name for e in cache.entries()} == {".new-current", "key"}


def test_what_is_mapped_survives_clearing(cache: FileCache) -> None:
    cache.put("kind", "key", b"data" * 1000)
    cache.put("kind", "other", b"data")
    mapped = cache.map("kind", "key")
    assert cache.clear() == (2, 4004 + 2 * 32)
    assert cache.entries() == []
    assert cache.get("kind", "key") is None
    assert mapped is not None
    assert mapped.tobytes() == b"data" * 1000
    cache.put("kind", "key", b"new")
    assert cache.get("kind", "key") == b"new"


def test_files_to_read_are_bounded_in_number(cache: FileCache, folder: Path) -> None:
    paths = [cache.keep("report", f"{n}.txt", b"text", newest=3) for n in range(5)]
    assert paths[4] == folder / "report" / "4.txt"
    assert {p.name for p in (folder / "report").iterdir()} == {"2.txt", "3.txt", "4.txt"}
    assert (folder / "report" / "4.txt").read_bytes() == b"text"


# -------------------------------------------------------------------------------------- damage
@settings(max_examples=50, deadline=None)
@given(data=st.binary(min_size=1), position=st.integers(0), flip=st.integers(1, 255))
def test_a_damaged_entry_counts_as_absent(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, position: int, flip: int
) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path_factory.mktemp("cache")))
    cache.put("kind", "key", data)
    assert cache.folder is not None
    path = cache.folder / "kind" / "key"
    stored = bytearray(path.read_bytes())
    position %= len(stored)
    path.write_bytes(stored[:position])
    assert cache.get("kind", "key") is None
    stored[position] ^= flip
    path.write_bytes(stored)
    assert cache.get("kind", "key") is None


def test_a_failed_write_leaves_nothing_behind(
    cache: FileCache, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("kind", "key", b"old")

    def full(*args: object, **folders: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "rename", full)
    cache.put("kind", "key", b"new")
    assert cache.get("kind", "key") == b"old"
    assert [e.path for e in cache.entries()] == ["kind/key"]
    assert cache.problem == f"'{folder}': no space left on device"


def test_a_disabled_cache_stores_nothing(tmp_path: Path) -> None:
    cache = FileCache(CacheConfig(enabled=False, dir=tmp_path / "whet"))
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") is None
    assert not (tmp_path / "whet").exists()


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = FileCache(CacheConfig(dir=tmp_path / "file" / "whet"))
    cache.put("kind", "key", b"data")
    assert cache.get("kind", "key") is None
