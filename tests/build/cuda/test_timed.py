"""Plans as networks that are timed: laid out as their segments, on memory of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.build.comparing import NO_CACHE, plan_of
from tests.build.cuda.recorded_driver import RecordedDriver, RecordedGenerator
from tests.build.cuda.segments import convolutions, gathering, image_of, product_graph, sum_graph
from tests.targets import HOST
from tests.tune.networks import kernels_of, plan_of as gpu_plan
from whet.build.backend import backend_of
from whet.build.cuda.image import STATUS_BYTES
from whet.build.cuda.timed import CudaNetwork
from whet.core.caching import FileCache
from whet.core.errors import UsageError
from whet.core.gpu import PRESETS
from whet.graph.graph import Graph
from whet.measure.cuda.network_bench import NetworkBench
from whet.measure.cuda.network_jobs import NetworkJob, Piece
from whet.measure.cuda.runner import CudaRunner
from whet.measure.kernel_process import Loadable
from whet.measure.results import Candidate, Comparison
from whet.schedule.space.trace import Trace
from whet.tasks.steps import Plan

TARGET = PRESETS["cuda-sm_90a"]
PLAINLY = Candidate("plain", {}, Trace((), {}).to_json())
"""The kernel before any schedule step."""

GRAPHS = pytest.mark.parametrize(
    "make",
    [convolutions, product_graph, gathering, lambda: sum_graph(5)],
    ids=["convolutions", "product", "gathering", "sum"],
)


class Pair(CudaRunner):
    """Keeps what is to be compared."""

    def __init__(self) -> None:
        super().__init__(build_processes=1)
        self.asked: list[tuple[Loadable, Loadable]] = []

    def compare_networks(
        self, name: str, new: Loadable, old: Loadable, seconds: float
    ) -> Comparison:
        self.asked.append((new, old))
        return Comparison(True, 0.5, 0.4, 0.6)


def network_of(plan: Plan, generator: RecordedGenerator) -> CudaNetwork:
    return CudaNetwork(plan, TARGET, "real", generator, Pair(), NO_CACHE)


def plainly(plan: Plan) -> dict[str, Candidate]:
    return dict.fromkeys(plan.tasks, PLAINLY)


def job_of(loadable: Loadable) -> NetworkJob:
    assert isinstance(loadable.job, NetworkJob)
    return loadable.job


@GRAPHS
@pytest.mark.parametrize("watches", [False, True])
def test_it_is_laid_out_as_its_segment(make: Callable[[], Graph], watches: bool) -> None:
    generator = RecordedGenerator(watches=watches)
    graph = make()
    plan, image = plan_of(graph), image_of(graph, generator)
    made = job_of(network_of(plan, generator).loadable(plainly(plan)))
    assert [c.launch for c in made.calls] == [c.launch for c in image.calls]
    assert made.pieces[0] == Piece("", image.arena_bytes, "u8")
    constants: dict[tuple[str, int], int] = {}
    for call, real in zip(made.calls, image.calls, strict=True):
        for (piece, at), slot in zip(call.places, real.slots, strict=True):
            match slot.kind:
                case "arena":
                    assert (piece, at) == (0, slot.at)
                case "status":
                    assert (piece, at) == (1, STATUS_BYTES * (1 + slot.at))
                case "array":
                    value = [*graph.inputs, *graph.outputs][slot.at].tensor_type
                    assert made.pieces[piece] == Piece(
                        f"array {slot.at}", value.nbytes, value.dtype.name
                    )
                case "constant" | "shared":
                    assert at == 0
                    assert constants.setdefault((slot.kind, slot.at), piece) == piece
                case kind:
                    raise AssertionError(kind)
    assert len(set(constants.values())) == len(constants)


@GRAPHS
@pytest.mark.parametrize("watches", [False, True])
def test_its_kernels_stay_within_its_memory(make: Callable[[], Graph], watches: bool) -> None:
    """The recorded driver runs them, and refuses every access to what is not the GPU's."""
    generator = RecordedGenerator(watches=watches)
    plan, driver = plan_of(make()), RecordedDriver(generator)
    made = network_of(plan, generator).loadable(plainly(plan))
    bench = NetworkBench(driver)
    bench.try_once(bench.load(job_of(made), made.arrays), limit=60.0)
    assert driver.ops("play")


def test_no_constant_is_made_and_code_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a constant was made")

    monkeypatch.setattr("whet.build.constants.prepare_constant", refuse)
    compiled: list[str] = []

    class Counted(RecordedGenerator):
        def objects(self, texts: Sequence[str], cache: FileCache) -> list[bytes]:
            compiled.extend(texts)
            return super().objects(texts, cache)

    plan = plan_of(convolutions())
    network = network_of(plan, Counted())
    first = network.loadable(plainly(plan))
    assert network.loadable(plainly(plan)).job == first.job
    assert len(compiled) == len(set(compiled)) == len(first.arrays)


def test_an_exchange_changes_the_calls_of_one_task() -> None:
    plan = gpu_plan(48, 48, 48)
    generator = RecordedGenerator()
    network = CudaNetwork(plan, TARGET, "real", generator, Pair(), NO_CACHE)
    usual = {key: kernels_of(task, 1)[0] for key, task in plan.tasks.items()}
    steps = [step.key for step in plan.steps]
    twice = max(steps, key=steps.count)
    other = next(
        c
        for c in kernels_of(plan.tasks[twice], 8)
        if c.holes["splits"] != usual[twice].holes["splits"]
    )
    network.compare({**usual, twice: other}, usual, 1.0)
    assert isinstance(network.runner, Pair)
    ((new, old),) = network.runner.asked
    changed = [
        a.launch != b.launch for a, b in zip(job_of(new).calls, job_of(old).calls, strict=True)
    ]
    assert changed == [key == twice for key in steps]
    assert sum(changed) == 2


def test_other_machines_time_no_networks() -> None:
    backend = backend_of(HOST)
    assert not backend.times_networks
    plan = plan_of(sum_graph(5))
    with pytest.raises(UsageError, match="WH3007 networks for 'cpu' are not timed"):
        backend.timed_network(plan, HOST, "real", backend.runner(), NO_CACHE)
