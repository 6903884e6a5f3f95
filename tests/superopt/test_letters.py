"""Letters beyond the core, and exact signs: what they find that was not there before."""

from __future__ import annotations

import dataclasses

import pytest

from whet.superopt.generate.alphabet import CORE, EXTRA, Alphabet
from whet.superopt.generate.kinds import plain
from whet.superopt.generate.pools import BATCHES, MATRICES, POOLS, Pool
from whet.superopt.prune.search import generate
from whet.superopt.prune.terms import Lexicon, Term

TWO = Pool(
    "two",
    (("x1", plain((3, 4), "activation")), ("x2", plain((3, 4), "activation"))),
    Alphabet(tuple(x for x in CORE if x.name in ("add", "mul", "relu", "transpose"))),
)


def found(pool: Pool, size: int, *, exact: bool = False) -> set[tuple[str, ...]]:
    """The equations as pairs of texts, attributes left out, in both directions."""
    lexicon = Lexicon()

    def shown(term: Term) -> str:
        if isinstance(term, int):
            return pool.inputs[term][0]
        return f"{lexicon.ops[term[0]].name}({', '.join(map(shown, term[2:]))})"

    equations = [e for es in generate(pool, size, lexicon, exact=exact).found.values() for e in es]
    texts = [(", ".join(map(shown, e.left)), ", ".join(map(shown, e.right))) for e in equations]
    return {*texts, *((b, a) for a, b in texts)}


def test_exact_signs_find_what_holds_for_relu_alone() -> None:
    rule = ("relu(relu(x1))", "relu(x1)")
    assert rule not in found(TWO, 2)
    assert rule in found(TWO, 2, exact=True)


def test_any_function_moves_through_a_transpose() -> None:
    rules = found(TWO.extended("opaque"), 2)
    for name in ("relu", "gelu", "swish"):
        assert (f"{name}(transpose(x1))", f"transpose({name}(x1))") in rules


def test_pieces_of_softmax_know_the_reciprocal() -> None:
    rules = found(TWO.extended("softmax"), 2)
    assert ("reciprocal(reciprocal(x1))", "x1") in rules


def test_reductions_are_linear() -> None:
    rules = found(TWO.extended("reduce"), 3)
    assert ("reduce_sum(add(x1, x2))", "add(reduce_sum(x1), reduce_sum(x2))") in rules
    assert ("reduce_mean(add(x1, x2))", "add(reduce_mean(x1), reduce_mean(x2))") in rules


def test_batches_of_matrices_are_multiplied() -> None:
    rules = found(BATCHES, 3)
    assert (
        "concat(matmul(x1, y1), matmul(x1, y2))",
        "matmul(x1, concat(y1, y2))",
    ) in rules


JOINED = "concat(conv(i1, k1), conv(i1, k2))", "conv(i1, concat(k1, k2))"
MOVED = {
    "biases": [
        ("add(add(i1, b1), add(i2, b2))", "add(add(i1, i2), add(b1, b2))"),
        ("avg_pool(add(i1, b1))", "add(avg_pool(i1), b1)"),
        ("concat(add(i1, b1), add(i2, b1))", "add(concat(i1, i2), b1)"),
        ("conv(mul(i1, b1), k1)", "conv(i1, mul(k1, b1))"),
    ],
    "row_biases": [
        ("mul(matmul(x1, w1), b1)", "matmul(x1, mul(w1, b1))"),
        ("add(add(x1, b1), add(x2, b2))", "add(add(x1, x2), add(b1, b2))"),
        ("concat(add(x1, b1), add(x2, b2))", "add(concat(x1, x2), concat(b1, b2))"),
    ],
    "token_biases": [
        ("mul(matmul(x1, w1), b1)", "matmul(x1, mul(w1, b1))"),
        ("add(matmul(x1, w1), matmul(x2, w1))", "matmul(add(x1, x2), w1)"),
    ],
    "heads": [
        ("concat(matmul(x1, y1), matmul(x1, y2))", "matmul(x1, concat(y1, y2))"),
        ("transpose(matmul(x1, y1))", "matmul(transpose(y1), transpose(x1))"),
        ("add(matmul(x1, w1), matmul(x2, w1))", "matmul(add(x1, x2), w1)"),
    ],
    "volumes": [JOINED[::-1], ("add(conv(v1, k1), conv(v2, k1))", "conv(add(v1, v2), k1)")],
    "transposed": [
        ("concat(conv_transpose(i1, k1), conv_transpose(i1, k2))",
         "conv_transpose(i1, concat(k1, k2))"),
        ("add(conv_transpose(i1, k1), conv_transpose(i2, k1))", "conv_transpose(add(i1, i2), k1)"),
    ],
    "windows": [
        JOINED,
        ("maximum(concat(i1, i2), s1)", "concat(maximum(i1, s1), maximum(i2, s1))"),
        ("max_pool(concat(i1, i2))", "concat(max_pool(i1), max_pool(i2))"),
    ],
}  # fmt: skip
"""Equations of networks that the pool's letters are there to find."""


@pytest.mark.parametrize("name", MOVED)
def test_pools_find_what_networks_need(name: str) -> None:
    rules = found(POOLS[name], 3)
    wanted = [(a.replace("i1", "v1"), b.replace("i1", "v1")) if name == "volumes" else (a, b)
              for a, b in MOVED[name]]  # fmt: skip
    assert [rule for rule in wanted if rule not in rules] == []


def test_a_bound_is_any_symmetric_function_of_two_numbers() -> None:
    """Only where signs are exact, a number is known to lie between itself and itself."""
    pool = Pool(
        "bounds",
        (("x1", plain((3, 4), "activation")), ("s1", plain((), "weight"))),
        Alphabet(EXTRA["clip"]),
    )
    between = ("maximum(minimum(x1, s1), s1)", "minimum(maximum(x1, s1), s1)")
    assert between not in found(pool, 2)
    assert between in found(pool, 2, exact=True)


@pytest.mark.parametrize("name", EXTRA)
def test_every_extension_has_new_applications(name: str) -> None:
    own = {"vectors": "row_biases", "heads": "heads", "volumes": "volumes"}
    if name in own:
        pool = POOLS[own[name]]
        fewer = tuple(x for x in pool.alphabet.letters if x not in EXTRA[name])
        bare = dataclasses.replace(pool, alphabet=Alphabet(fewer))
        less = generate(bare, 1, Lexicon()).counts[0].canonical
        assert generate(pool, 1, Lexicon()).counts[0].canonical > less
        return
    image = {"strided", "same_upper", "valid", "reshape", "transposed", "strided_pools"}
    pool = POOLS["ten"] if name in image else MATRICES
    plain_graphs = generate(pool, 1, Lexicon()).counts[0].canonical
    if name == "broadcast":
        pool = pool.extended("reduce")
        plain_graphs = generate(pool, 2, Lexicon()).counts[1].canonical
        assert generate(pool.extended(name), 2, Lexicon()).counts[1].canonical > plain_graphs
        return
    assert generate(pool.extended(name), 1, Lexicon()).counts[0].canonical > plain_graphs


def test_a_letter_is_added_once() -> None:
    names = [x.name for x in MATRICES.extended("softmax", "layer_norm").alphabet.letters]
    assert len(names) == len(set(names))
