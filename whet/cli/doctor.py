"""whet doctor: what whet can do in this installation, and what is missing for the rest."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import whet
from whet.cli.arguments import JsonOption, QuietOption
from whet.cli.console import Reporter
from whet.cli.extras import EXTRAS
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import WhetError

HEADER = ("part", "there", "found", "hint")
USES = {
    "rules": "finding and proving graph rewrites",
    "ray": "tuning on several machines",
    "cuda": "compiling for NVIDIA GPUs",
}
"""The use of every extra."""


@dataclass(frozen=True)
class Finding:
    """One thing that whet uses."""

    what: str
    ok: bool
    text: str
    """Found, or missing."""
    hint: str = ""


def doctor_command(quiet: QuietOption = False, json: JsonOption = False) -> None:
    """Show what this installation and this machine allow, and how to get what is missing."""
    reporter = Reporter(quiet=quiet, as_json=json)
    found = list(findings())
    rows = [[f.what, "yes" if f.ok else "no", f.text, f.hint] for f in found]
    reporter.result(
        {"findings": [asdict(f) for f in found]},
        lambda: reporter.table(HEADER, rows, text=HEADER),
    )


def findings() -> Iterator[Finding]:
    """Everything that is looked at, what all models need first."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("whet", True, f"{whet.__version__}, Python {python}")
    yield _asked("native code", _processor)
    yield _asked("cache", _cache)
    for extra, use in USES.items():
        yield _extra(extra, use)
    yield _asked("GPU code", _nvrtc)
    yield _asked("GPU", _gpu)


def _extra(extra: str, use: str) -> Finding:
    packages = [package for package, name in EXTRAS.items() if name == extra]
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    if missing:
        return Finding(extra, False, f"{use}: {', '.join(missing)} not installed",
                       f"pip install 'whet[{extra}]'")  # fmt: skip
    return Finding(extra, True, use)


def _asked(what: str, ask: Callable[[], str]) -> Finding:
    """A finding by what something says about itself, or by the error that it fails with."""
    try:
        return Finding(what, True, ask())
    except WhetError as error:
        return Finding(what, False, error.message, error.hint or "")


def _processor() -> str:
    from whet.build.backend import backend_of, named_target

    target = named_target("cpu")
    why = backend_of(target).unavailable()
    if why is not None:
        raise WhetError("WH1008", why, hint="pip install llvmlite")
    return str(target)


def _cache() -> str:
    cache = FileCache(process_config().cache)
    if not cache.keeps:
        raise WhetError("WH1002", cache.problem or "switched off",
                        hint="set WHET_CACHE_DIR to a folder of your own")  # fmt: skip
    return str(cache.config.dir)


def _nvrtc() -> str:
    from whet.codegen.cuda.nvrtc import nvrtc_version

    return f"NVRTC {nvrtc_version()}"


def _gpu() -> str:
    from whet.build.cuda.detect import detected_gpu

    return str(detected_gpu())
