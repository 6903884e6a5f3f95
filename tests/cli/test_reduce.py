"""whet reduce: files, messages, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.api.test_reduce import NUMBERS, PLANTED, WRONG
from tests.frontend.small_models import model, node, tensor
from whet.api.reduce import models
from whet.graph import passes


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A chain of five operators; a planted pass, in wrong.py beside it, is wrong for sigmoid."""
    monkeypatch.setattr(passes, "PASSES", passes.PASSES.copy())
    names = ["x", "a", "b", "c", "d", "y"]
    kinds = ["Exp", "Neg", "Sigmoid", "Tanh", "Abs"]
    nodes = [node(kind, a, b) for kind, a, b in zip(kinds, names, names[1:])]
    path = tmp_path / "chain.onnx"
    onnx.save(model(nodes, [tensor("x", [2, 3])], [tensor("y", [2, 3])]), path)
    text = PLANTED.format(operator="sigmoid", what=WRONG)
    (tmp_path / f"wrong_{os.getpid()}_{next(NUMBERS)}.py").write_text(text)
    return path


def module(chain: Path) -> Path:
    (found,) = chain.parent.glob("wrong_*.py")
    return found


def test_the_smallest_part_is_written(whet: Callable[..., Any], chain: Path) -> None:
    done = whet("reduce", chain, "--module", module(chain), "--threads", 1)
    assert done.returncode == 0
    first, before, after = done.stdout.splitlines()
    path = chain.with_name("chain.reduced.onnx")
    assert first.startswith(f"{path}: 1 of 5 nodes")
    assert first.endswith("trials: sigmoid")
    assert before.startswith("before  wrong: output 'y' is off by")
    assert after.startswith("after   wrong: output 'y0' is off by")
    made = onnx.load(path)
    onnx.checker.check_model(made)
    assert [n.op_type for n in made.graph.node] == ["Sigmoid"]
    assert not list(chain.parent.glob("*.npy"))


def test_json_and_another_file(whet: Callable[..., Any], chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    done = whet("reduce", chain, "--module", module(chain), "-o", path, "--json", "--failing")
    found = json.loads(done.stdout)
    assert found["model"] == str(path)
    assert (found["nodes_before"], found["nodes"], found["operators"]) == (5, 1, ["sigmoid"])
    assert (found["problem"], found["interrupted"], found["inputs"]) == ("wrong", False, {})


def test_values_that_matter_are_stored(
    whet: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault shows for numbers above 9, which no random input is."""
    monkeypatch.setattr(passes, "PASSES", passes.PASSES.copy())
    what = (
        "from whet.ops.arithmetic import Minimum; import numpy as np; "
        "return b.results(Minimum(), *b.results(node.op, *inputs), b.constant(np.float32(9)))"
    )
    limit = tmp_path / f"limit_{os.getpid()}_{next(NUMBERS)}.py"
    limit.write_text(PLANTED.format(operator="abs", what=what))
    nodes = [node("Mul", "in/x hundred", "a"), node("Abs", "a", "b"), node("Neg", "b", "y")]
    path = tmp_path / "large.onnx"
    onnx.save(model(nodes, [tensor("in/x", [3])], [tensor("y", [3])],
                    {"hundred": np.float32(100)}), path)  # fmt: skip
    done = whet("reduce", path, "--module", limit, "--json")
    found = json.loads(done.stdout)
    assert found["operators"] == ["abs"]
    ((name, file),) = found["inputs"].items()
    assert np.abs(np.load(file)).max() > 9
    again = whet("reduce", found["model"], "--module", limit, "--input", f"{name}={file}", "--json")
    assert json.loads(again.stdout)["before"] == found["after"]


def test_a_model_that_is_fine(whet: Callable[..., Any], chain: Path) -> None:
    done = whet("reduce", chain)
    assert done.returncode == 2
    assert f"WH3008 '{chain}' compiles, runs, and gives what the reference gives" in done.stderr
    assert not chain.with_name("chain.reduced.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--failing", "--mispriced", "2"], "--failing excludes --mispriced"),
        (["--mispriced", "0.5"], "the factor of --mispriced is 1 or less"),
        (["--timeout", "0"], "--timeout must be more than 0"),
        (["--module", "no_such_module"], "there is no module 'no_such_module'"),
    ],
)
def test_arguments_that_make_no_sense(
    whet: Callable[..., Any], chain: Path, arguments: list[str], message: str
) -> None:
    done = whet("reduce", chain, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_interrupt_keeps_the_smallest_part(
    whet: Callable[..., Any], chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = models.smallest_case

    def interrupted(cutter: Any, shows: Any, found: Any, **options: Any) -> Any:
        def first(case: Any) -> None:
            found(case)
            raise KeyboardInterrupt

        return search(cutter, shows, first, **options)

    monkeypatch.setattr(models, "smallest_case", interrupted)
    done = whet("reduce", chain, "--module", module(chain), "--json")
    assert done.returncode == 0
    assert "interrupted: this is the smallest part so far" in done.stderr
    found = json.loads(done.stdout)
    assert found["interrupted"]
    assert 1 <= found["nodes"] < 5
    assert "sigmoid" in found["operators"]
    onnx.checker.check_model(onnx.load(found["model"]))


def test_an_interrupt_before_anything_is_found(
    whet: Callable[..., Any], chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "smallest_case", interrupted)
    assert whet("reduce", chain, "--module", module(chain)).returncode == 130
    assert not chain.with_name("chain.reduced.onnx").exists()
