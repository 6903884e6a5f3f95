"""Whole networks against other runtimes, batch 1; and what they cost otherwise.

    python bench/networks.py [--threads 1 2] [--only resnet50 bert_base] [--onnx FOLDER]
                             [--budget 5m]

With a budget, graphs and kernels of each network are searched for that long before it is measured,
in a database of this run's own; else whet compiles as it does by default.

The twelve networks are written by bench/zoo with seeded weights; --onnx takes them from a folder
with an index.json instead.  Errors are against the graph as imported, run by the interpreter in
float64, relative to the largest value.  Runtimes that are not installed are left out.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import whet
from harness import costs
from harness.peers import Field, error_of_range
from harness.report import (
    ABSENT,
    Goal,
    Report,
    any_disturbed,
    count,
    fastest,
    geometric_mean,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.tuning import use_database
from harness.turns import Measurement, settings_from, take_turns
from whet.core.errors import WhetError
from whet.core.types import Array
from zoo.networks import BUILDERS, Network, build_networks, read_networks

PEERS = ("onnxruntime", "openvino", "torch", "torch_channels_last", "torch_compile", "jax")
LARGEST_ERROR = 1e-4
INACCURATE = 1e-3
"""A peer whose result is further off than this is shown, but is not what whet is compared with."""
REPEATS = 5
COST_NETWORK = "resnet50"


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--onnx", type=Path, metavar="FOLDER", help="networks with an index.json")
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--budget", default="0", metavar="TIME", help="search per network: 5m")
    made.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    made.add_argument("--part", nargs="+", choices=("speed", "costs"), default=["speed", "costs"])
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("Networks", settings_of(given))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.budget != "0":
            use_database(folder / "records.db")
        if "speed" in given.part:
            measure_speed(report, given, networks(given, folder, given.only))
        if "costs" in given.part:
            (network,) = networks(given, folder, [COST_NETWORK])
            for threads in given.threads:
                measure_costs(report, network, threads, folder, given.foreign)
    report.finish(given.json)


def networks(
    given: argparse.Namespace, folder: Path, only: Sequence[str] | None
) -> list[Network]:  # fmt: skip
    if given.onnx:
        return read_networks(given.onnx, only)
    say("writing the networks")
    return build_networks(folder, only)


# ----------------------------------------------------------------------------------------- speed
def measure_speed(report: Report, given: argparse.Namespace, found: list[Network]) -> None:
    """Every network on every number of threads, all runtimes in turns."""
    expected: dict[str, tuple[Array, ...]] = {}
    if given.budget != "0":
        for network, threads in itertools.product(found, given.threads):
            say(f"searching {network.name}, {count(threads)}")
            whet.compile(network.path, threads=threads, budget=given.budget)
    settings, names = settings_from(given), ["whet", *given.peers]
    for threads in given.threads:
        lines, ratios = [], []
        with Field({n: (n, threads) for n in names}) as field:
            for network in found:
                say(f"{network.name}, {count(threads)}")
                values = network.sample()
                if network.name not in expected:
                    expected[network.name] = reference(network, values)
                peers = field.load_all(names, str(network.path), values)
                errors = {
                    n: largest_error(p.run(), expected[network.name]) for n, p in peers.items()
                }
                times = take_turns(peers, settings, failed=field.note)
                line, ratio = judge(report, network.name, threads, names, times, errors)
                lines.append(line)
                ratios += [ratio] if ratio else []
        mean = geometric_mean(ratios)
        if ratios:
            cells = [""] * (len(names) + 1)
            lines.append(["geometric mean", *cells, number(mean), ""])
        header = ("network", *names, "best peer", "ratio", "error")
        report.add_table(f"Batch 1, {count(threads)}, milliseconds", header, lines)
        if given.only is None:
            complete = mean if len(ratios) == len(BUILDERS) else None
            report.goals.append(Goal(f"{count(threads)}: geometric mean", complete, 1.0))
        report.notes += [f"{count(threads)}, {n}: {why}" for n, why in field.missing.items()]


def reference(network: Network, values: dict[str, Array]) -> tuple[Array, ...]:
    """The outputs in float64."""
    from whet.api.reference import reference_results

    return reference_results(str(network.path), list(values), list(values.values()))


def largest_error(found: Sequence[Array], expected: Sequence[Array]) -> float:
    return max(error_of_range(a, b) for a, b in zip(found, expected, strict=True))


def judge(
    report: Report,
    network: str,
    threads: int,
    names: Sequence[str],
    times: dict[str, Measurement],
    errors: dict[str, float],
) -> tuple[list[str], float | None]:
    """Adds to the report; the line of the table and the ratio to the best peer."""
    sound = [n for n in names if n != "whet" and errors.get(n, 0.0) <= INACCURATE]
    best, own = fastest(times, sound), times.get("whet")
    ratio = times[best].median / own.median if best and own else None
    error = errors.get("whet")
    report.rows.append(
        {"network": network, "threads": threads, "times": times, "errors": errors,
         "best_peer": best, "ratio": ratio}
    )  # fmt: skip
    where = f"{network}, {count(threads)}"
    unsure = any_disturbed(own, times[best] if best else None)
    report.goals.append(Goal(f"{where}: ratio to the best peer", ratio, 0.7, disturbed=unsure))
    report.goals.append(Goal(f"{where}: error", error, LARGEST_ERROR, at_least=False))
    cells = [
        milliseconds(times.get(n)) + ("!" if errors.get(n, 0.0) > INACCURATE else "")
        for n in names
    ]  # fmt: skip
    return [network, *cells, best or ABSENT, number(ratio), number(error, 2)], ratio


# ----------------------------------------------------------------------------------------- costs
def measure_costs(
    report: Report, network: Network, threads: int, folder: Path, most_foreign: float
) -> None:
    """Compiling, loading, memory and overhead, each in new processes; medians of several."""
    model, artifact = str(network.path), str(folder / "model.whet")
    warm = folder / f"cache{threads}"
    say(f"costs, {count(threads)}")
    try:
        cold = []
        for n in range(REPEATS):
            cache = warm if n == 0 else folder / f"cold{threads}-{n}"
            cold.append(
                costs.in_new_process("compile", model, artifact, cache=cache, threads=threads)
            )
        again = repeated("compile", model, "-", cache=warm, threads=threads)
        loaded = repeated("load", artifact, cache=warm, threads=threads)
        memory = costs.in_new_process("memory", artifact, cache=warm, threads=threads)
        overhead = repeated("overhead", cache=warm, threads=threads)
    except WhetError as error:
        report.notes.append(f"costs, {count(threads)}: {error.message}")
        return
    bound = memory["packed_weight_bytes"] + 1.2 * memory["live_bytes"]
    planned = memory["packed_weight_bytes"] + memory["arena_bytes"]
    figures = {
        f"{network.name}, compile cold, s": median(cold, "compile_s"),
        f"{network.name}, compile with a warm cache, s": median(again, "compile_s"),
        f"{network.name}, load, s": median(loaded, "load_s"),
        f"{network.name}, first call after load, s": median(loaded, "first_call_s"),
        "call of a one-operator model, µs": 1e6 * median(overhead, "call_s"),
        "the same into an existing array, µs": 1e6 * median(overhead, "call_into_s"),
        "NumPy's own call of that size, µs": 1e6 * median(overhead, "numpy_s"),
        f"{network.name}, packed weights, MB": memory["packed_weight_bytes"] / 1e6,
        f"{network.name}, largest live set, MB": memory["live_bytes"] / 1e6,
        f"{network.name}, working memory, MB": memory["arena_bytes"] / 1e6,
        f"{network.name}, resident after load and call, MB": memory["rest_bytes"] / 1e6,
        f"{network.name}, resident at the peak of a call, MB": memory["peak_bytes"] / 1e6,
        f"{network.name}, of it code, its loader and objects, MB": (memory["peak_bytes"] - planned)
        / 1e6,
    }
    engines = {c["engine"] for c in (*cold, *again, *loaded, *overhead, memory)}
    report.rows.append({"costs": network.name, "threads": threads, "figures": figures,
                        "engines": sorted(engines)})  # fmt: skip
    lines = [[what, number(value)] for what, value in figures.items()]
    report.add_table(f"Costs, {count(threads)}, engine {', '.join(engines)}", ("", "found"), lines)
    where = count(threads)
    limits = (
        ("compile cold, s", median(cold, "compile_s"), 15.0, cold),
        ("load, s", median(loaded, "load_s"), 0.5, loaded),
        ("call of a one-operator model, µs", 1e6 * median(overhead, "call_s"), 5.0, overhead),
        ("weights and working memory over their bound", planned / bound, 1.0, []),
        ("all that is resident over that bound", memory["peak_bytes"] / bound, 1.0, []),
    )
    for what, value, limit, runs in limits:
        unsure = bool(runs) and median(runs, "foreign") > most_foreign
        goal = Goal(f"{what}, {where}", value, limit, at_least=False, disturbed=unsure)
        report.goals.append(goal)


def repeated(action: str, *arguments: str, cache: Path, threads: int) -> list[dict[str, Any]]:
    return [
        costs.in_new_process(action, *arguments, cache=cache, threads=threads)
        for _ in range(REPEATS)
    ]


def median(found: Sequence[dict[str, Any]], name: str) -> float:
    return statistics.median(f[name] for f in found)


if __name__ == "__main__":
    main()
