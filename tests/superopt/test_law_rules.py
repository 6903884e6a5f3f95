"""Laws as rules: which become one, and those that networks need are shipped."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from whet.graph.terms import Apply, Number, Term, Variable, read_term
from whet.ops.base import law
from whet.superopt.generate.laws import (
    as_stated,
    law_candidates,
    meaning,
    without_repetitions,
)
from whet.superopt.rules.files import shipped
from whet.superopt.rules.rule import Rule, Variable as Input
from whet.superopt.verify.report import Report

MATRICES, WINDOWS, ALL = {2, 3, 4}, {4, 5}, {2, 3, 4, 5}
WANTED = {
    "1x1 convolution and average": ("avg_pool(conv(x, w))", "conv(avg_pool(x), w)", WINDOWS),
    "relu through a maximum": ("max_pool(relu(x))", "relu(max_pool(x))", WINDOWS),
    "lower bound through a maximum": (
        "max_pool(maximum(x, s))", "maximum(max_pool(x), s)", WINDOWS),
    "bias through an average": ("avg_pool(add(x, c))", "add(avg_pool(x), c)", WINDOWS),
    "relu of parts": ("relu(concat(x, y))", "concat(relu(x), relu(y))", ALL),
    "relu of a slice": ("slice(relu(x))", "relu(slice(x))", ALL),
    "relu of a cut": ("split(relu(x))[0]; split(relu(x))[1]",
                      "relu(split(x)[0]); relu(split(x)[1])", ALL),
    "lower bound of parts": (
        "maximum(concat(x, y), s)", "concat(maximum(x, s), maximum(y, s))", ALL),
    "upper bound of a slice": ("slice(minimum(x, s))", "minimum(slice(x), s)", ALL),
    "upper bound of a cut": ("split(minimum(x, s))[0]; split(minimum(x, s))[1]",
                             "minimum(split(x)[0], s); minimum(split(x)[1], s)", ALL),
    "bias per part": ("add(concat(x, y), concat(a, b))", "concat(add(x, a), add(y, b))", ALL),
    "factor per part": ("mul(concat(x, y), concat(a, b))", "concat(mul(x, a), mul(y, b))", ALL),
    "one bias of parts": ("add(concat(x, y), a)", "concat(add(x, a), add(y, a))", ALL),
    "bias of a cut": ("split(add(x, a))[0]; split(add(x, a))[1]",
                      "add(split(x)[0], split(a)[0]); add(split(x)[1], split(a)[1])", ALL),
    "one factor of a cut": ("split(mul(x, a))[0]; split(mul(x, a))[1]",
                            "mul(split(x)[0], a); mul(split(x)[1], a)", ALL),
    "average of one element": ("avg_pool(x)", "slice(x)", WINDOWS),
    "stride of a 1x1 convolution": ("conv(x, w)", "conv(slice(x), w)", WINDOWS),
    "padded image": ("conv(pad(x, 0), w)", "conv(x, w)", WINDOWS),
    "padding twice": ("pad(pad(x, v), v)", "pad(x, v)", MATRICES),
    "sums": ("add(add(x, y), z)", "add(x, add(y, z))", ALL),
    "products": ("mul(mul(x, y), z)", "mul(x, mul(y, z))", ALL),
    "scale after a convolution": ("mul(conv(x, w), c)", "conv(x, mul(w, transpose(c)))", WINDOWS),
    "scale before a convolution": ("conv(mul(x, c), w)", "conv(x, mul(w, c))", WINDOWS),
    "bias before a convolution": ("conv(add(x, c), w)", "add(conv(x, w), conv(expand(c), w))",
                                  WINDOWS),
    "scale of columns": ("matmul(a, mul(b, s))", "mul(matmul(a, b), s)", MATRICES),
    "scale before a product": ("matmul(mul(a, s), b)", "matmul(a, mul(b, reshape(s)))", MATRICES),
    "scale of a scaled sum": ("mul(add(x, a), b)", "add(mul(x, b), mul(a, b))", ALL),
    "products of matrices": ("matmul(matmul(a, b), c)", "matmul(a, matmul(b, c))", MATRICES),
    "scale after a transposed convolution": (
        "mul(conv_transpose(x, w), c)", "conv_transpose(x, mul(w, c))", WINDOWS),
    "transposed convolutions that share an input": (
        "concat(conv_transpose(x, w), conv_transpose(x, v))", "conv_transpose(x, concat(w, v))",
        WINDOWS),
}  # fmt: skip
"""Both sides without attributes, and the ranks of the largest input."""


def bare(term: Term) -> str:
    """The term without its attributes."""
    match term:
        case Variable(name=name):
            return name
        case Number(value=value):
            return f"{value:g}"
        case Apply(op=op, inputs=inputs, result=result):
            picked = "" if result is None else f"[{result}]"
            return f"{op}({', '.join(map(bare, inputs))}){picked}"


def equation(left: str, right: str) -> str:
    """Both sides with variables in order of appearance."""
    names: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return names.setdefault(found.group(), f"v{len(names)}")

    return re.sub(r"\b[a-z]\w*\b(?!\()", numbered, f"{left} = {right}")


def equations(rule: Rule) -> Iterator[str]:
    left, right = ("; ".join(map(bare, side)) for side in (rule.left, rule.right))
    yield equation(left, right)
    yield equation(right, left)


@pytest.fixture(scope="module")
def known() -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for rule in shipped():
        for text in equations(rule):
            found.setdefault(text, set()).add(max((v.rank for v in rule.variables), default=0))
    return found


@pytest.mark.parametrize("name", WANTED)
def test_laws_that_networks_need_are_shipped(name: str, known: dict[str, set[int]]) -> None:
    left, right, ranks = WANTED[name]
    assert known.get(equation(left, right), set()) >= ranks


def candidates(*laws: tuple[str, dict[str, object]]) -> tuple[Rule, ...]:
    stated = {f"law.{n}": law(text, "real", **example) for n, (text, example) in enumerate(laws)}  # type: ignore[arg-type]
    return law_candidates(stated).rules


def test_operands_that_may_be_constants_are_also_weights() -> None:
    any_ = "strides=s, pads=p, dilations=d, groups=1"
    filters: dict[str, object] = {
        "x": (2, 3, 4, 5), "w": (4, 3, 3, 3), "c": (), "s": (1, 1), "p": (0,) * 4, "d": (1, 1)
    }  # fmt: skip
    text = f"mul(conv(x, w, {any_}), c) = conv(x, mul(w, c), {any_})"
    roles = {tuple(v.role for v in r.variables) for r in candidates((text, filters))}
    assert roles == {("activation", "weight", "weight")}, "c goes into the filters"
    alike: dict[str, object] = dict.fromkeys("xyz", (2, 3))
    found = candidates(("sub(add(x, y), z) = sub(x, sub(z, y))", alike))
    roles = {tuple(v.role for v in r.variables) for r in found}
    one_or_both = itertools.product(("activation", "weight"), repeat=2)
    assert roles == {("activation", *others) for others in one_or_both}


def test_parts_of_a_split_become_one_rule() -> None:
    shapes: dict[str, object] = {"x": (2, 3), "k": 1, "z": (1, 2)}
    cut = "axis=k, sizes=z"
    laws = [(f"split(ceil(x), {cut})[{n}] = ceil(split(x, {cut})[{n}])", shapes) for n in range(2)]
    (rule,) = [r for r in candidates(*laws) if r.variables[0].rank == 2]
    assert rule.lhs == tuple(f"split(ceil(x), axis=k, sizes=z)[{n}]" for n in range(2))


@pytest.mark.parametrize(
    ("text", "when", "reason"),
    [
        ("log(mul(x, y)) = add(log(x), log(y))", ("x > 0", "y > 0"), "speaks of elements"),
        ("slice(relu(x), starts=[1, 0], stops=[2, 2], steps=[1, 1]) = "
         "relu(slice(x, starts=[1, 0], stops=[2, 2], steps=[1, 1]))", (), "numbers of an example"),
        ("abs(x) = abs(x)", (), "both sides are the same"),
        ("reshape(x, shape=[2, 3, 1]) = x", (), "numbers of an example"),
    ],
)  # fmt: skip
def test_laws_that_become_no_rule_have_a_reason(
    text: str, when: tuple[str, ...], reason: str
) -> None:
    names = {n: (2, 3) for n in ("x", "y") if re.search(rf"\b{n}\b", text)}
    found = law_candidates({"some.law": law(text, "real", when=when, **names)})
    assert found.rules == ()
    ((name, why),) = found.left_out
    assert name == "some.law"
    assert reason in why


def test_a_law_that_needs_guards_is_not_proved() -> None:
    rule = Rule("some", (Input("x", 2),), ("relu(x)",), ("x",))
    plain, guarded = (
        Report(rule, "proved", ()),
        Report(rule, "proved", (), added_guards=("k == 1",)),
    )
    assert [r.outcome for r in as_stated([plain, guarded])] == ["proved", "unproved"]


def test_names_of_variables_and_the_order_of_sides_do_not_matter() -> None:
    one = Rule("one", (Input("x", 2), Input("w", 2, "weight")),
               ("matmul(relu(x), w)",), ("add(x, w)",), ("dim(x, 0) == 1",))  # fmt: skip
    two = Rule("two", (Input("a", 2, "weight"), Input("y", 2)),
               ("add(y, a)",), ("matmul(relu(y), a)",), ("dim(y, 0) == 1",))  # fmt: skip
    other = Rule("other", two.variables, two.lhs, two.rhs, ("dim(a, 0) == 1",))
    assert meaning(one) == meaning(two) != meaning(other)
    assert without_repetitions([two, other], [one]) == (other,)


def test_attribute_variables_are_renamed_too() -> None:
    def cut(axis: str, guard: str) -> Rule:
        text = f"concat(x, y, axis={axis})"
        return Rule("cut", (Input("x", 2), Input("y", 2)), (f"relu({text})",), (text,), (guard,))

    assert meaning(cut("k", "k < 1")) == meaning(cut("j", "j < 1"))
    assert meaning(cut("k", "k < 1")) != meaning(cut("k", "k < 2"))
    assert isinstance(read_term("concat(x, y, axis=k)"), Apply)
