"""Run ONNX's own node tests through whet:  python tools/conformance.py [SUBSTRING ...]

Prints one line per test that does not pass, then the counts.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter

import numpy as np
import onnx

warnings.simplefilter("ignore")
from onnx.backend.test.loader import load_model_tests  # noqa: E402

from whet.core.errors import UnsupportedError, WhetError  # noqa: E402
from whet.frontend.onnx import import_model  # noqa: E402
from whet.graph.interpret import interpret  # noqa: E402


def as_array(value):
    """Test data of small element types comes as TensorProto, all else as arrays."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value


def run_case(case) -> tuple[str, str]:
    """('pass' | 'unsupported' | 'wrong' | 'error' | 'crash', detail)"""
    try:
        for inputs, expected in case.data_sets:
            names = [i.name for i in case.model.graph.input]
            examples = dict(zip(names, map(as_array, inputs)))
            imported = import_model(case.model, examples)
            flat = imported.flatten(tuple(examples.values()))
            got = imported.pack(interpret(imported.graph, imported.graph_inputs(flat)))
            for a, b in zip(got, map(as_array, expected), strict=True):
                if a.shape != b.shape or a.dtype != b.dtype:
                    return "wrong", f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
                if a.dtype.kind in "fV":
                    a, b = a.astype("f8"), b.astype("f8")
                np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol)
    except UnsupportedError as error:
        return "unsupported", "; ".join(error.details)
    except WhetError as error:
        return "error", str(error).replace("\n", " | ")
    except AssertionError as error:
        return "wrong", str(error).replace("\n", " ")[:200]
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error} @ " + traceback.format_exc().splitlines()[
            -3
        ].strip()
    return "pass", ""


def main() -> None:
    counts: Counter[str] = Counter()
    for case in load_model_tests(kind="node"):
        if len(sys.argv) > 1 and not any(s in case.name for s in sys.argv[1:]):
            continue
        status, detail = run_case(case)
        counts[status] += 1
        if status != "pass":
            print(f"{status:12s}{case.name}: {detail}"[:300])
    print(dict(counts))


main()
