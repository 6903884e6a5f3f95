"""Cases as files, and cut into smaller ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tools.graph_fuzz.case import Case, Variant, load_case, save_case
from tools.graph_fuzz.model import grow_model
from tools.graph_fuzz.store import store_failure
from tools.graph_fuzz.surgery import (
    arrays_of,
    intermediate_values,
    with_arrays,
    with_outputs,
    with_value,
)
from tools.graph_fuzz.targets import NAMES, can_run, find_cpu
from tools.graph_fuzz.trial import Outcome, plain_reason, run_case
from whet.core.errors import WhetError
from whet.frontend.onnx import import_model


def some_case(index: int) -> Case:
    grown = grow_model(5, index)
    return Case(grown.model, grown.inputs, Variant(target="x86-64-v3", threads=3))


@pytest.mark.parametrize("index", range(6))
def test_a_stored_case_is_the_same(tmp_path: Path, index: int) -> None:
    case = some_case(index)
    save_case(case, tmp_path)
    loaded = load_case(tmp_path)
    assert loaded.model == case.model
    assert loaded.variant == case.variant
    assert loaded.inputs.keys() == case.inputs.keys()
    for name, array in case.inputs.items():
        assert loaded.inputs[name].dtype == array.dtype
        assert loaded.inputs[name].tobytes() == array.tobytes()


def test_a_failure_is_stored_with_a_script(tmp_path: Path) -> None:
    case = some_case(0)
    store_failure(tmp_path / "f", case, case, Outcome("wrong", "17 for 18"), "graph 0")
    names = {p.name for p in (tmp_path / "f").iterdir()}
    assert {"model.onnx", "model.txt", "inputs.pb", "variant.json", "report.txt", "reproduce.py",
            "original"} <= names  # fmt: skip
    assert "17 for 18" in (tmp_path / "f" / "report.txt").read_text()
    compile((tmp_path / "f" / "reproduce.py").read_text(), "reproduce.py", "exec")


@pytest.mark.parametrize("index", range(8))
def test_cut_models_are_models(index: int) -> None:
    """With a value given instead of computed, or as the only output, they still import."""
    case = some_case(index)
    values = intermediate_values(case)
    assert values
    for name, array in values.items():
        for cut in (with_outputs(case, [name]), with_value(case, name, array)):
            assert len(cut.model.graph.node) <= len(case.model.graph.node) + 1
            import_model(cut.model, cut.inputs)


def test_arrays_can_be_replaced() -> None:
    case = some_case(1)
    name, array = next((n, a) for n, a in arrays_of(case).items() if a.ndim)
    shorter = np.take(array, range(1), 0)
    assert arrays_of(with_arrays(case, {name: shorter}))[name].shape == shorter.shape


@pytest.mark.parametrize("name", NAMES)
def test_targets_are_what_they_are_called(name: str) -> None:
    target = find_cpu(name)
    widths = {"x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512}
    assert target.vector_bits == widths.get(name, target.vector_bits)
    assert can_run("cpu")


def test_reasons_are_counted_without_names_and_numbers() -> None:
    a = plain_reason("node 'n17' of [2, 3]: axis 4 is outside")
    assert (
        a
        == plain_reason("node 'n2' of [9]: axis -1 is outside")
        == ("node '...' of [...]: axis N is outside")
    )


def test_a_refusal_is_no_failure() -> None:
    case = some_case(2)
    broken = with_arrays(case, {})
    broken.model.graph.node[0].op_type = "NoSuchOperator"
    found = run_case(broken, peer=False)
    assert found.kind == "refused"
    assert not found.failed
    with pytest.raises(WhetError):
        import_model(broken.model, broken.inputs)
