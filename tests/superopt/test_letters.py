"""Letters beyond the core, and exact signs: what they find that was not there before."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", EXTRA)
def test_every_extension_has_new_applications(name: str) -> None:
    image = {"strided", "same_upper", "valid", "reshape"}
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
