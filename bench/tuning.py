"""What tuning costs and knows: trials per second, transfer, templates, unusual contractions.

    python bench/tuning.py [--part rate transfer template einsum] [--trials 64] [--json OUT]

rate       small operators: trials per second from start to end, and the time to build one
transfer   two shapes of a class are tuned; a third gets a schedule from their records at once,
           which takes turns with its own tuned kernel, and with the default
template   examples/matmul_template.py against whet's own sketches
einsum     contractions that nobody prepared for, with epilogues of their own: the whole model's
           time, as users call it, by the roofline of its arithmetic, sums and epilogue, and of its
           inputs and outputs; beside it, by the roofline of the sums alone
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx

from harness.peers import Peer
from harness.report import (
    Goal,
    Report,
    count,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.tuning import native_engine, tasks_of, tune, use_database
from harness.turns import Settings, settings_from, take_turns
from whet.db.store import Database
from whet.measure.cpu.measurer import Measurer
from whet.measure.results import Candidate
from whet.schedule.default import default_choice
from whet.tune.roofline import arithmetic
from whet.tune.schedule import choose
from whet.tune.search import WeightedTask
from whet.tune.tuner import Budget
from zoo.einsums import CONTRACTIONS
from zoo.layers import ConvLayer, conv_model, matmul_model

PARTS = ("rate", "transfer", "template", "einsum")
SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "matmul 64": lambda: matmul_model(64, 64, 64, constant=True),
    "matmul 256": lambda: matmul_model(256, 256, 256, constant=True),
    "conv 3x3 64 @28": lambda: conv_model(ConvLayer(28, 64, 64, 3)),
    "depthwise 96 @28": lambda: conv_model(ConvLayer(28, 96, 96, 3, groups=96)),
}


def _conv(cin: int, cout: int, size: int, stride: int = 1) -> onnx.ModelProto:
    return conv_model(ConvLayer(size, cin, cout, 3, stride))


def _depthwise(channels: int, size: int) -> onnx.ModelProto:
    return conv_model(ConvLayer(size, channels, channels, 3, groups=channels))


def _product(m: int, n: int, k: int) -> onnx.ModelProto:
    return matmul_model(m, n, k, constant=True)


def classes() -> dict[str, tuple[list[onnx.ModelProto], list[onnx.ModelProto]]]:
    """Donors and new shapes of each class."""
    return {
        "matmul": ([_product(256, 256, 512), _product(384, 384, 768)],
                   [_product(512, 320, 640), _product(196, 1024, 256)]),
        "conv 3x3": ([_conv(64, 64, 56), _conv(128, 128, 28)],
                     [_conv(96, 160, 40), _conv(256, 256, 14)]),
        "conv 3x3 /2": ([_conv(64, 64, 56, 2), _conv(128, 128, 28, 2)],
                        [_conv(96, 160, 40, 2), _conv(256, 256, 14, 2)]),
        "depthwise": ([_depthwise(96, 56), _depthwise(192, 28)],
                      [_depthwise(144, 40), _depthwise(384, 14)]),
    }  # fmt: skip


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    made.add_argument("--trials", type=int, default=64)
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("Tuning", settings_of(given))
    parts = {"rate": measure_rate, "transfer": measure_transfer, "template": measure_template,
             "einsum": partial(measure_einsum, settings_from(given))}  # fmt: skip
    for threads in given.threads:
        for part in given.part:
            with tempfile.TemporaryDirectory() as folder:
                say(f"{part}, {count(threads)}")
                parts[part](report, Path(folder), threads, given.trials)
    report.finish(given.json)


def main_task(model: onnx.ModelProto, folder: Path, threads: int) -> WeightedTask:
    """The task that does the work."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return max(tasks_of(path, threads), key=lambda t: t.task.operations)


def measure_rate(report: Report, folder: Path, threads: int, trials: int) -> None:
    lines, rates, builds = [], [], []
    for number_, (name, model) in enumerate(SMALL.items()):
        use_database(folder / f"{number_}.db")
        task = main_task(model(), folder, threads)
        start = time.monotonic()
        (done,) = tune([task], threads, Budget(trials=trials))
        seconds = time.monotonic() - start
        with Database(folder / f"{number_}.db") as database:
            ms = [r.build_ms for r in database.records() if r.build_ms]
        rates.append(done.trials / seconds)
        builds += ms
        lines.append([name, str(done.trials), number(seconds), number(rates[-1]),
                      number(statistics.median(ms)), number(done.gain)])  # fmt: skip
    header = ("operator", "trials", "seconds", "trials per second", "build median ms", "gain")
    report.add_table(f"Small operators, {count(threads)}", header, lines)
    report.rows.append({"rates": rates, "build_ms": statistics.median(builds)})
    report.goals += [
        Goal(f"{count(threads)}: trials per second, slowest", min(rates), 5.0),
        Goal(f"{count(threads)}: build median, ms", statistics.median(builds), 35.0,
             at_least=False),
    ]  # fmt: skip


def measure_transfer(report: Report, folder: Path, threads: int, trials: int) -> None:
    target = native_engine().target
    lines = []
    for name, (donors, news) in classes().items():
        known = folder / f"{name.replace('/', 's')}.db"
        use_database(known)
        for model in donors:
            tune([main_task(model, folder, threads)], threads, Budget(trials=trials))
        for model in news:
            task = main_task(model, folder, threads)
            start = time.monotonic()
            with Database(known) as database:
                chosen = choose(task.task, database, target, threads)
            seconds = time.monotonic() - start
            own = folder / f"own{len(lines)}.db"
            use_database(own)
            (done,) = tune([task], threads, Budget(trials=trials))
            with Database(own) as database:
                best = database.best(task.task.key, target, threads)
            assert best is not None
            tuned = Candidate(best.sketch, best.holes)
            default = default_choice(task.task, target, threads)
            others = (chosen.candidate, Candidate(default.sketch.name, default.holes))
            with Measurer() as measurer:
                speeds = [
                    measurer.compare(task.task, tuned, c, threads, target, 1.0).ratio
                    for c in others
                ]  # fmt: skip
            where = f"{name} {list(task.task.outputs[0].shape)}"
            report.rows.append({"transfer": where, "origin": chosen.origin, "seconds": seconds,
                                "of_tuned": speeds[0], "default_of_tuned": speeds[1]})  # fmt: skip
            lines.append([where, chosen.origin, number(seconds), number(100 * speeds[0]),
                          number(100 * speeds[1]), number(done.best_seconds * 1e6)])  # fmt: skip
            report.goals += [
                Goal(f"{where}: share of the tuned speed", speeds[0], 0.8),
                Goal(f"{where}: seconds", seconds, 5.0, at_least=False),
            ]
    header = ("new shape", "from", "seconds", "% of tuned speed", "default, %", "tuned us")
    report.add_table(f"Without trials, {count(threads)}", header, lines)


def measure_template(report: Report, folder: Path, threads: int, trials: int) -> None:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
    from matmul_template import tune_both

    size = 512
    own, automatic = tune_both(size, trials, threads)
    share = own.gflops / automatic.gflops
    lines = [[n, str(r.trials), number(r.gflops), r.schedule]
             for n, r in (("template", own), ("automatic", automatic))]  # fmt: skip
    report.add_table(f"A user's template, matmul {size}, {count(threads)}",
                     ("", "trials", "GFLOP/s", "schedule"), lines)  # fmt: skip
    report.rows.append({"template_share": share})
    report.goals.append(Goal(f"{count(threads)}: template by automatic", share, 0.85))


def measure_einsum(
    settings: Settings, report: Report, folder: Path, threads: int, trials: int
) -> None:  # fmt: skip
    target, lines = native_engine().target, []
    for position, contraction in enumerate(CONTRACTIONS):
        use_database(folder / f"einsum{position}.db")
        network = contraction.written(folder)
        tasks = tasks_of(network.path, threads)
        operations = sum(t.count * arithmetic(t.task) for t in tasks)
        tuned = tune(tasks, threads, Budget(trials=trials))
        values = network.sample()
        with Peer("whet_into", threads) as own:
            own.load(str(network.path), values)
            nbytes = sum(a.nbytes for a in (*values.values(), *own.run()))
            time_ = take_turns({"whet": own}, settings)["whet"]
        least = target.roofline(operations, nbytes, threads)
        share = least / time_.median
        sums = target.roofline(contraction.operations, nbytes, threads) / time_.median
        kernels = "; ".join(f"{r.best_seconds * 1e6:.0f} us {r.schedule}" for r in tuned)
        report.rows.append({"einsum": str(contraction), "share": share, "share_of_sums": sums,
                            "least_s": least, "time": time_, "kernels": kernels})  # fmt: skip
        lines.append([str(contraction), str(dict(contraction.extents)), milliseconds(time_),
                      number(1e3 * least), number(100 * share), number(100 * sums),
                      kernels])  # fmt: skip
        report.goals.append(
            Goal(f"{contraction}, {count(threads)}: share of the roofline", share, 0.7,
                 disturbed=time_.disturbed)
        )  # fmt: skip
    header = (
        "equation",
        "extents",
        "ms",
        "roofline ms",
        "% of roofline",
        "% without epilogue",
        "kernels",
    )
    report.add_table(f"Contractions with epilogues, {count(threads)}", header, lines)


if __name__ == "__main__":
    main()
