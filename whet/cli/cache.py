"""whet cache: what is kept between runs, and getting rid of it."""

from __future__ import annotations

from collections import Counter

import typer

from whet.cli.arguments import JsonOption, QuietOption
from whet.cli.console import Reporter
from whet.core.caching import FileCache
from whet.core.config import process_config

cache_app = typer.Typer(help="Show or clear what is kept between runs.", no_args_is_help=True,
                        add_completion=False)  # fmt: skip

KINDS = {
    "segment": "compiled models",
    "constants": "their small constants",
    "constant": "packed weights, shared by models and shapes",
    "object": "compiled kernels",
    "refusals": "operators without native code",
    "target": "measurements of this machine",
    "report": "reports of failures",
    "rewrites": "cheaper graphs that were found",
    "peer-turns": "graphs' times in ONNX Runtime",
}
"""The kinds of entries, as users know them."""


@cache_app.command("info")
def info_command(json: JsonOption = False) -> None:
    """Show where the cache is and how much it holds."""
    reporter = Reporter(as_json=json)
    cache = FileCache(process_config().cache)
    count: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for entry in cache.entries():
        count[entry.kind] += 1
        nbytes[entry.kind] += entry.nbytes
    kinds = [
        {"kind": kind, "meaning": KINDS.get(kind, ""), "entries": count[kind], "bytes": n}
        for kind, n in nbytes.most_common()
    ]
    rows = [(k, str(count[k]), _megabytes(n), KINDS.get(k, "")) for k, n in nbytes.most_common()]
    place = cache.folder or cache.config.dir
    document = {
        "folder": None if place is None else str(place),
        "enabled": cache.config.enabled,
        "problem": cache.problem,
        "limit_bytes": cache.limit or None,
        "bytes": nbytes.total(),
        "entries": count.total(),
        "kinds": kinds,
    }

    def show() -> None:
        most = f", at most {_megabytes(cache.limit)}" if cache.limit else ", without a limit"
        held = f"{_megabytes(nbytes.total())} in {count.total()} entries"
        reporter.text(f"{place or 'no folder'}: {held}{most}")
        if rows:
            reporter.table(("kind", "entries", "size", "meaning"), rows, text=("meaning",))
        if not cache.config.enabled:
            reporter.note("the cache is not used: WHET_CACHE_ENABLED=0")
        if cache.problem:
            reporter.note(f"nothing is kept: {cache.problem}")

    reporter.result(document, show)


@cache_app.command("clear")
def clear_command(quiet: QuietOption = False, json: JsonOption = False) -> None:
    """Remove everything that is kept; it is made again when it is needed.

    Models that run meanwhile are not disturbed, and tuning records are kept elsewhere.
    """
    reporter = Reporter(quiet=quiet, as_json=json)
    cache = FileCache(process_config().cache)
    count, nbytes = cache.clear()
    if cache.problem:
        reporter.note(f"not everything could be removed: {cache.problem}")
    reporter.result(
        {"entries": count, "bytes": nbytes},
        lambda: reporter.text(f"removed {count} entries, {_megabytes(nbytes)}"),
    )


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
