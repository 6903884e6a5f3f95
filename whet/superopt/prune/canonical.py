"""Input renaming: rules that differ only in the names of their variables are one rule.

The canonical text of a rule has its variables numbered, commutative operands sorted, outputs
sorted and the smaller side first.  Variables are told apart by how they are used (colours
refined over both sides); those that this does not tell apart can be exchanged.

A rule is also dropped when it is an instance of another one: the same terms with variables of
the other one made equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from whet.superopt.prune.terms import Found, Lexicon, Term, variables

ROUNDS = 3
Colours = Mapping[int, int]


def canonical_text(found: Found, lexicon: Lexicon) -> str:
    """The same text for all rules that are the same up to renaming."""
    colours = _colours(found, lexicon)
    order = sorted(colours, key=lambda v: colours[v])
    names = {v: f"v{n}" for n, v in enumerate(order)}
    outputs = [
        (_text(left, names, lexicon), _text(right, names, lexicon))
        for left, right in zip(found.left, found.right)
    ]
    forwards = sorted(outputs)
    backwards = sorted((right, left) for left, right in outputs)
    chosen = min(forwards, backwards)
    return " ; ".join(f"{left} = {right}" for left, right in chosen)


def skeleton(found: Found, lexicon: Lexicon) -> int:
    """A number that is equal for rules which differ in variables alone."""
    blank = dict.fromkeys(variables(*found.left, *found.right), 0)
    sides = [sorted(_up(t, blank, lexicon) for t in terms) for terms in (found.left, found.right)]
    return hash(tuple(tuple(s) for s in sorted(sides)))


def _text(term: Term, names: Mapping[int, str], lexicon: Lexicon) -> str:
    if isinstance(term, int):
        return names[term]
    operands = [_text(t, names, lexicon) for t in term[2:]]
    if lexicon.commutative(term[0]):
        operands.sort()
    return f"{lexicon.labels[term[0]]}.{term[1]}({','.join(operands)})"


# ------------------------------------------------------------------------------------- colours
def _up(term: Term, colours: Colours, lexicon: Lexicon) -> int:
    """A number for the term as seen from above."""
    if isinstance(term, int):
        return colours[term]
    operands = [_up(t, colours, lexicon) for t in term[2:]]
    if lexicon.commutative(term[0]):
        operands.sort()
    return hash((lexicon.labels[term[0]], term[1], *operands))


def _colours(found: Found, lexicon: Lexicon) -> Colours:
    """A number for every variable that depends only on how it is used."""
    colours: dict[int, int] = dict.fromkeys(variables(*found.left, *found.right), 0)
    for _ in range(ROUNDS):
        seen: Counter[int] = Counter()

        def look(term: Term, context: int) -> None:
            if isinstance(term, int):
                seen[term] += hash((context, colours[term]))
                return
            operands = [_up(t, colours, lexicon) for t in term[2:]]
            free = lexicon.commutative(term[0])
            inner = hash((context, lexicon.labels[term[0]], term[1], *sorted(operands)))
            for n, operand in enumerate(term[2:]):
                look(operand, hash((inner, operands[n], 0 if free else n + 1)))

        for left, right in zip(found.left, found.right):
            above_left, above_right = (_up(t, colours, lexicon) for t in (left, right))
            look(left, hash((above_right, above_left)))
            look(right, hash((above_left, above_right)))
        colours = {v: hash((colours[v], seen[v])) for v in colours}
    return colours


# ----------------------------------------------------------------------------------- instances
def drop_instances(rules: Sequence[Found], lexicon: Lexicon) -> list[int]:
    """The positions of the rules that are not instances of another one."""
    groups: dict[int, list[int]] = {}
    for n, rule in enumerate(rules):
        groups.setdefault(skeleton(rule, lexicon), []).append(n)
    kept = []
    for members in groups.values():
        # Rules with more variables are the more general ones.
        members.sort(key=lambda n: (-len(rules[n].kinds), n))
        general: list[int] = []
        for n in members:
            if not any(_is_instance(rules[n], rules[g], lexicon) for g in general):
                general.append(n)
        kept += general
    return sorted(kept)


def _is_instance(special: Found, general: Found, lexicon: Lexicon) -> bool:
    """Whether renaming variables of the general rule gives the special one."""
    if len(special.left) != len(general.left):
        return False
    for left, right in ((special.left, special.right), (special.right, special.left)):
        wanted = list(zip(left, right))
        pairs = list(zip(general.left, general.right))
        if any(True for _ in _match_outputs(pairs, wanted, {}, lexicon)):
            return True
    return False


def _match_outputs(
    pairs: list[tuple[Term, Term]], wanted: list[tuple[Term, Term]], bound: Mapping[int, int],
    lexicon: Lexicon,
) -> Iterator[Mapping[int, int]]:  # fmt: skip
    if not pairs:
        yield bound
        return
    for n, (left, right) in enumerate(wanted):
        rest = wanted[:n] + wanted[n + 1 :]
        for once in _match(pairs[0][0], left, bound, lexicon):
            for both in _match(pairs[0][1], right, once, lexicon):
                yield from _match_outputs(pairs[1:], rest, both, lexicon)


def _match(
    pattern: Term, term: Term, bound: Mapping[int, int], lexicon: Lexicon
) -> Iterator[Mapping[int, int]]:
    """The ways to bind variables to variables that make the pattern the term."""
    if isinstance(pattern, int):
        if isinstance(term, int) and bound.get(pattern, term) == term:
            yield {**bound, pattern: term}
        return
    same = (
        not isinstance(term, int)
        and len(term) == len(pattern)
        and term[1] == pattern[1]
        and lexicon.labels[term[0]] == lexicon.labels[pattern[0]]
    )
    if not same:
        return
    orders: Iterable[tuple[Term, ...]] = (term[2:],)
    if lexicon.commutative(pattern[0]):
        orders = (term[2:], (term[3], term[2]))
    for operands in orders:
        yield from _match_all(pattern[2:], operands, bound, lexicon)


def _match_all(
    patterns: tuple[Term, ...], terms: tuple[Term, ...], bound: Mapping[int, int],
    lexicon: Lexicon,
) -> Iterator[Mapping[int, int]]:  # fmt: skip
    if not patterns:
        yield bound
        return
    for once in _match(patterns[0], terms[0], bound, lexicon):
        yield from _match_all(patterns[1:], terms[1:], once, lexicon)
