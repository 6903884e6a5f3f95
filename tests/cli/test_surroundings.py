"""Commands where something is missing or full: packages, memory, room for the output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Whet = Callable[..., Any]


def test_version_loads_no_command() -> None:
    """Half a hundred modules of whet take a second to load, and `--version` needs none."""
    code = (
        "import sys\nfrom whet.cli.main import main\ntry: main(['--version'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, loaded = done.stdout.splitlines()
    assert version.startswith("whet ")
    loaded_modules = set(loaded.split())
    assert not {"numpy", "onnx", "llvmlite", "rich.console"} & loaded_modules
    own = {name for name in loaded_modules if name.startswith("whet.") and name.count(".") > 1}
    assert own <= {
        "whet.cli.commands", "whet.cli.extras", "whet.cli.interrupts", "whet.cli.main",
        "whet.core.errors", "whet.core.version",
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [("--version",), ("inspect", "MODEL", "-q"), ("inspect", "MODEL", "-q", "--json")]
)
def test_an_output_that_is_full(model: Path, arguments: tuple[str, ...]) -> None:
    given = [str(model) if a == "MODEL" else a for a in arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "whet", *given], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "error WH3006 cannot write the output: No space left on device\n"


def test_a_closed_output(model: Path) -> None:
    command = f"{sys.executable} -m whet inspect {model} -q >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_device_is_written_to_and_not_replaced(whet: Whet, model: Path, tmp_path: Path) -> None:
    """As root, renaming a file to /dev/null would end the day of everybody on the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    done = whet("run", model, "-o", pipe, "-q")
    assert done.returncode == 0
    assert os.read(reader, 2) == b"PK"
    os.close(reader)
    assert pipe.is_fifo()
    done = whet("run", model, "-o", "/dev/full", "-q")
    assert done.returncode == 2
    assert "error WH3006 cannot write '/dev/full': No space left on device" in done.stderr
    assert Path("/dev/full").is_char_device()


def test_a_link_stays_a_link(whet: Whet, model: Path, tmp_path: Path) -> None:
    (tmp_path / "real.npz").write_text("old")
    (tmp_path / "link.npz").symlink_to(tmp_path / "real.npz")
    assert whet("run", model, "-o", tmp_path / "link.npz", "-q").returncode == 0
    assert (tmp_path / "link.npz").is_symlink()
    with np.load(tmp_path / "real.npz") as found:
        assert "y" in found


def test_an_extra_that_is_not_installed(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("whet.superopt.verify")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "z3", None)
    done = whet("rules", "verify")
    assert done.returncode == 1
    assert "error WH1008 this needs the package 'z3', which is not installed" in done.stderr
    assert "hint: pip install 'whet[rules]'" in done.stderr


def test_memory_that_is_not_enough(
    whet: Whet, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr("whet.cli.run.sample_values", fail)
    done = whet("run", model, "-q")
    assert done.returncode == 1
    assert done.stderr == ("error WH1005 there is not enough memory\n  Unable to allocate 3 TiB\n")


# -------------------------------------------------------------------------------------- cache
@pytest.fixture
def cache_folder(tmp_path: Path, configured: Callable[..., None]) -> Path:
    configured(CACHE_DIR=tmp_path / "cache", CACHE_MEGABYTES=7)
    return tmp_path / "cache"


def test_cache_info_and_clear(whet: Whet, model: Path, cache_folder: Path) -> None:
    empty = json.loads(whet("cache", "info", "--json").stdout)
    assert (empty["entries"], empty["folder"]) == (0, str(cache_folder))
    assert whet("run", model, "-q").returncode == 0
    found = json.loads(whet("cache", "info", "--json").stdout)
    assert found["limit_bytes"] == 7_000_000
    assert found["problem"] is None
    assert {"segment", "object"} <= {k["kind"] for k in found["kinds"]}
    assert all(k["meaning"] for k in found["kinds"])
    assert found["bytes"] == sum(k["bytes"] for k in found["kinds"])
    shown = whet("cache", "info").stdout
    assert f"{cache_folder}: " in shown
    assert "at most 7.0 MB" in shown
    assert json.loads(whet("cache", "clear", "--json").stdout)["entries"] == found["entries"]
    assert whet("cache", "clear").stdout == "removed 0 entries, 0.0 MB\n"
    assert whet("run", model, "-q").returncode == 0


def test_cache_info_says_what_is_wrong(
    whet: Whet, cache_folder: Path, configured: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    configured(CACHE_DIR=tmp_path / "file")
    done = whet("cache", "info")
    assert done.returncode == 0
    assert f"note: nothing is kept: '{tmp_path / 'file'}': Not a directory" in done.stderr
    configured(CACHE_ENABLED=0)
    assert "note: the cache is not used: WHET_CACHE_ENABLED=0" in whet("cache", "info").stderr
