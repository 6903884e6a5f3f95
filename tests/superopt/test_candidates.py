"""What the generator finds: the rules behind TASO's case studies, and none of the known traps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from whet.core.types import Array, TensorType
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import REGISTRY, NoAlgebra, Op, operator
from whet.superopt.generate.alphabet import CORE, EXTRA, Alphabet, Letter
from whet.superopt.generate.kinds import Kind, plain
from whet.superopt.generate.pools import BATCHES, GROUPS, MATRICES, TEN, Pool
from whet.superopt.prune.candidates import Candidate, Catalogue, find_candidates

LETTERS = {x.name: x for x in CORE}
GEOMETRY = re.compile(
    r", (strides|pads|dilations|ceil_mode|kernel)=(\[[^\[\]=]*(\[\d\][^\[\]=]*)*\]|\w+)"
)


def _renamed(text: str) -> str:
    """Variables numbered in order of appearance."""
    names: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return names.setdefault(found.group(), f"v{len(names)}")

    return re.sub(r"\b[xyzuvwabcf]\b", number, text)


def _spellings(left: tuple[str, ...], right: tuple[str, ...]) -> Iterator[str]:
    for one, other in ((left, right), (right, left)):
        for order in itertools.permutations(range(len(one))):
            text = " ; ".join(f"{one[n]} = {other[n]}" for n in order)
            yield _renamed(GEOMETRY.sub("", text))


def texts(catalogue: Catalogue) -> set[str]:
    """All spellings of all candidates, without the geometry of windows."""
    return {s for c in catalogue.candidates for s in _spellings(c.forms[0].lhs, c.forms[0].rhs)}


@pytest.fixture(scope="module")
def found() -> Catalogue:
    return find_candidates([TEN, GROUPS, MATRICES], 3)


CASE_STUDIES = {
    "convolutions that share an input":
        "conv(x, w, groups=1) = split(conv(x, concat(w, a, axis=0), groups=1), axis=1, "
        "sizes=[dim(w, 0), dim(a, 0)])[0] ; conv(x, a, groups=1) = split(conv(x, "
        "concat(w, a, axis=0), groups=1), axis=1, sizes=[dim(w, 0), dim(a, 0)])[1]",
    "matmuls that share an input (Q, K, V)":
        "matmul(x, w) = split(matmul(x, concat(w, a, axis=1)), axis=1, "
        "sizes=[dim(w, 1), dim(a, 1)])[0] ; matmul(x, a) = split(matmul(x, "
        "concat(w, a, axis=1)), axis=1, sizes=[dim(w, 1), dim(a, 1)])[1]",
    "a larger kernel": "conv(x, w, groups=1) = conv(x, enlarge(w), groups=1)",
    "average pool as convolution":
        "avg_pool(x, count_include_pad=true) = "
        "conv(x, pool_weight(channels=dim(x, 1)), groups=dim(x, 1))",
    "regrouping":
        "conv(x, w, groups=g) = conv(x, regroup(w, groups=g, merged=m), groups=g // m)",
    "regrouping to one group":
        "conv(x, w, groups=g) = conv(x, regroup(w, groups=g, merged=g), groups=1)",
    "convolutions side by side as groups":
        "conv(concat(x, y, axis=1), concat(w, a, axis=0), groups=2) = "
        "concat(conv(x, w, groups=1), conv(y, a, groups=1), axis=1)",
    "grouped convolutions side by side":
        "conv(concat(x, y, axis=1), concat(w, a, axis=0), groups=2 * g) = "
        "concat(conv(x, w, groups=g), conv(y, a, groups=g), axis=1)",
    "relu through concat":
        "relu(concat(x, y, axis=1)) = concat(relu(x), relu(y), axis=1)",
    "matmul distributes": "matmul(add(x, y), w) = add(matmul(x, w), matmul(y, w))",
    "matmul associates": "matmul(matmul(x, w), a) = matmul(x, matmul(w, a))",
    "sum of matmuls as one":
        "matmul(concat(x, y, axis=1), concat(w, a, axis=0)) = add(matmul(x, w), matmul(y, a))",
    "sum of convolutions as one":
        "conv(concat(x, y, axis=1), concat(w, a, axis=1), groups=1) = "
        "add(conv(x, w, groups=1), conv(y, a, groups=1))",
}  # fmt: skip


@pytest.mark.parametrize("name", CASE_STUDIES)
def test_rules_of_the_case_studies_are_found(found: Catalogue, name: str) -> None:
    assert _renamed(CASE_STUDIES[name]) in texts(found)


def test_one_matrix_for_a_whole_batch_is_merged_too() -> None:
    """Q, K and V of a batch of sentences."""
    merged = "split(matmul(x, concat(w, a, axis=1)), axis=2, sizes=[dim(w, 1), dim(a, 1)])"
    wanted = f"matmul(x, w) = {merged}[0] ; matmul(x, a) = {merged}[1]"
    assert _renamed(wanted) in texts(find_candidates([BATCHES], 3))


def test_enlarge_and_merge_is_found() -> None:
    """A 1x3 and a 3x3 convolution of one input become one, at four operators."""
    pool = Pool(
        "enlarge",
        (
            ("i1", plain((2, 4, 5, 3), "activation")),
            ("k1", plain((4, 4, 3, 3), "weight")),
            ("m1", plain((4, 4, 1, 3), "weight")),
        ),
        Alphabet(tuple(LETTERS[n] for n in ("add", "conv", "concat", "enlarge", "split"))),
    )
    spelled = texts(find_candidates([pool], 4))
    merged = "conv(x, concat(w, enlarge(a, kernel=[dim(w, 2), dim(w, 3)]), axis=0), groups=1)"
    sizes = "axis=1, sizes=[dim(w, 0), dim(a, 0)]"
    wanted = (
        f"conv(x, w, groups=1) = split({merged}, {sizes})[0] ; "
        f"conv(x, a, groups=1) = split({merged}, {sizes})[1]"
    )
    assert _renamed(GEOMETRY.sub("", wanted)) in spelled


# ---------------------------------------------------------------------------------------- traps
def test_channels_of_grouped_convolutions_are_not_merged(found: Catalogue) -> None:
    """TASO's axiom is false for more than one group; here it is only said for one."""
    merged = [
        c.forms[0]
        for c in found.candidates
        if any("conv(x, concat(w, a, axis=0)" in t for t in c.forms[0].lhs + c.forms[0].rhs)
    ]
    assert merged
    for rule in merged:
        both = " ".join(rule.lhs + rule.rhs)
        assert "groups=g" not in both or "concat(x, y, axis=1)" in both, both


def _window_pool(letter: str, kernel: tuple[int, int]) -> Pool:
    letters = (LETTERS["enlarge"], *(EXTRA[letter] if letter in EXTRA else (LETTERS[letter],)))
    return Pool(
        letter,
        (
            ("i1", plain((2, 2, 6, 4), "activation")),
            ("w1", plain((3, 2, *kernel), "weight")),
        ),
        Alphabet(letters),
    )


def _enlarges(catalogue: Catalogue) -> list[Candidate]:
    return [
        c for c in catalogue.candidates if "enlarge(" in " ".join(c.forms[0].lhs + c.forms[0].rhs)
    ]


def test_enlarging_at_stride_2_depends_on_the_padding() -> None:
    """Padding by half the kernel allows it; SAME_UPPER padding, odd at the end, does not."""
    assert _enlarges(find_candidates([_window_pool("conv", (1, 1))], 2))
    assert _enlarges(find_candidates([_window_pool("strided", (1, 1))], 2))
    assert not _enlarges(find_candidates([_window_pool("same_upper", (1, 1))], 2))


RELU = Pool(
    "relu",
    (
        ("x1", plain((3, 4), "activation")),
        ("x2", plain((3, 4), "activation")),
    ),
    Alphabet(tuple(LETTERS[n] for n in ("add", "mul", "relu"))),
)


def test_relu_is_no_polynomial() -> None:
    """With relu(x) = x(x + 1) + 1, as in TASO, x + relu(x) is (x + 1)**2 and rules follow."""
    for c in find_candidates([RELU], 4).candidates:
        sides = [" ".join(side) for side in (c.forms[0].lhs, c.forms[0].rhs)]
        assert sides[0].count("relu") == sides[1].count("relu"), sides


def test_exact_signs_find_what_random_functions_cannot() -> None:
    idempotent = _renamed("relu(relu(x)) = relu(x)")
    assert idempotent not in texts(find_candidates([RELU], 2))
    assert idempotent in texts(find_candidates([RELU], 2, exact=True))


def test_letters_beyond_tasos_are_added_by_name() -> None:
    pool = Pool("rows", MATRICES.inputs[:4], Alphabet((LETTERS["add"], LETTERS["concat"])))
    spelled = texts(find_candidates([pool.extended("reduce", "opaque")], 3))
    for rule in (
        "reduce_sum(add(x, y), axes=[1], keepdims=true) = add(reduce_sum(x, axes=[1], "
        "keepdims=true), reduce_sum(y, axes=[1], keepdims=true))",
        'concat(gelu(x, approximate="none"), gelu(y, approximate="none"), axis=0) = '
        'gelu(concat(x, y, axis=0), approximate="none")',
    ):
        assert any(s in spelled for s in _spellings(*((side,) for side in rule.split(" = ")))), rule


# ------------------------------------------------------------------- an operator from outside
def test_an_operator_from_outside_the_package_needs_one_letter() -> None:
    @operator("turned", "x")
    class Turned(Op):
        """The matrix with its columns in reverse order."""

        def infer(self, x: TensorType) -> TensorType:
            return x

        def compute(self, x: Tensor) -> Compute:
            last = x.shape[1] - 1
            return compute(x.shape, lambda i, j: x[i, -j + last], "turned")

        def reference(self, x: Array) -> Array:
            return x[:, ::-1]

        axioms = NoAlgebra("the generator finds it")

    def propose(x: Kind) -> Iterator[Op]:
        if len(x.shape) == 2:
            yield Turned()

    try:
        letters = tuple(LETTERS[n] for n in ("relu", "matmul", "concat", "add"))
        alphabet = Alphabet((*letters, Letter("turned", 1, propose)))
        spelled = texts(find_candidates([Pool("turned", MATRICES.inputs[:5], alphabet)], 3))
    finally:
        del REGISTRY["turned"]
    for rule in (
        "turned(turned(x)) = x",
        "turned(relu(x)) = relu(turned(x))",
        "turned(matmul(x, w)) = matmul(x, turned(w))",
        "turned(concat(x, y, axis=0)) = concat(turned(x), turned(y), axis=0)",
        "turned(concat(x, y, axis=1)) = concat(turned(y), turned(x), axis=1)",
    ):
        assert _renamed(rule) in spelled, rule
    assert _renamed("turned(matmul(x, w)) = matmul(turned(x), w)") not in spelled


# -------------------------------------------------------------------------------------- funnel
def test_the_funnel_narrows(found: Catalogue) -> None:
    for row in found.funnel[1:]:
        steps = (row.sequences, row.canonical, row.visited, row.pairs, row.disjoint)
        assert steps == tuple(sorted(steps, reverse=True))
        assert row.renamed >= row.general >= row.core > 0
    assert sum(c.in_core for c in found.candidates) < len(found.candidates)


def test_candidates_are_unproved_and_read_back(found: Catalogue) -> None:
    names = [c.name for c in found.candidates]
    assert len(set(names)) == len(names)
    for c in found.candidates:
        for rule in c.forms:
            assert rule.certificate is None
            assert rule.left
            assert rule.right
        assert [n for n, _ in c.shapes] == [v.name for v in c.forms[0].variables]


def test_the_same_seed_gives_the_same_rules_and_another_seed_the_same_set() -> None:
    first, again, other = (find_candidates([MATRICES], 3, seed=s) for s in (0, 0, 1))
    assert first == again
    assert texts(first) == texts(other)
