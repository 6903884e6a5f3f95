"""Input renaming: rules that differ only in the names of their variables are one rule.

The canonical text of a rule has its variables numbered, commutative operands sorted, outputs
sorted and the smaller side first.  Variables are told apart by how they are used (colours
refined over both sides); those that this does not tell apart can be exchanged.

A rule is also dropped when it is an instance of another one: the same terms with variables of
the other one made equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from whet.superopt.prune.terms import Found, Lexicon, Term

ROUNDS = 3
MASK = (1 << 64) - 1
VARIABLE = -1
"""The label of a variable."""


def canonical_text(found: Found, lexicon: Lexicon) -> str:
    """The same text for all rules that are the same up to renaming."""
    graph = _Graph(found, lexicon)
    colours = graph.colours()
    texts = graph.texts(colours)
    outputs = [(texts[left], texts[right]) for left, right in graph.outputs]
    forwards = sorted(outputs)
    backwards = sorted((right, left) for left, right in outputs)
    return " ; ".join(f"{left} = {right}" for left, right in min(forwards, backwards))


def skeleton(found: Found, lexicon: Lexicon) -> int:
    """A number that is equal for rules which differ in variables alone."""
    graph = _Graph(found, lexicon)
    up = graph.up([0] * len(graph.labels))
    sides = (sorted(up[left] for left, _ in graph.outputs),
             sorted(up[right] for _, right in graph.outputs))  # fmt: skip
    return hash(tuple(tuple(s) for s in sorted(sides)))


def _mixed(a: int, b: int) -> int:
    """A number that depends on both as if drawn at random.

    Python's hash of tuples is nearly linear: sums of such hashes do not tell x in first place
    here and second there from the reverse.
    """
    z = (a * 0x9E3779B97F4A7C15 + 0x165667B19E3779F9) & MASK
    z = ((z ^ (z >> 31)) * 0xBF58476D1CE4E5B9 + b * 0xC2B2AE3D27D4EB4F) & MASK
    z = ((z ^ (z >> 29)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 32)


class _Graph:
    """The terms of both sides as nodes, operands before their users."""

    def __init__(self, found: Found, lexicon: Lexicon) -> None:
        self.labels: list[int] = []
        self.picked: list[int] = []
        self.operands: list[tuple[int, ...]] = []
        self.free: list[bool] = []
        """Whether the operands may be exchanged."""
        self.lexicon = lexicon
        self.known: dict[Term, int] = {}
        self.outputs = [(self._node(x), self._node(y)) for x, y in zip(found.left, found.right)]

    def _node(self, term: Term) -> int:
        number = self.known.get(term)
        if number is None:
            row: tuple[int, int, tuple[int, ...], bool] = (VARIABLE, 0, (), False)
            if not isinstance(term, int):
                inner = tuple(self._node(t) for t in term[2:])
                free = self.lexicon.commutative(term[0])
                row = (self.lexicon.labels[term[0]], term[1], inner, free)
            number = self.known[term] = len(self.labels)
            self.labels.append(row[0])
            self.picked.append(row[1])
            self.operands.append(row[2])
            self.free.append(row[3])
        return number

    def up(self, colours: Sequence[int]) -> list[int]:
        """A number for every node that depends on what is below it."""
        found: list[int] = []
        for n, label in enumerate(self.labels):
            if label == VARIABLE:
                found.append(colours[n])
                continue
            inner = [found[o] for o in self.operands[n]]
            if self.free[n]:
                inner.sort()
            found.append(hash((label, self.picked[n], *inner)))
        return found

    def colours(self) -> list[int]:
        """A number for every variable that depends only on how it is used on both sides."""
        colours = [0] * len(self.labels)
        for _ in range(ROUNDS):
            up = self.up(colours)
            context = [0] * len(up)
            for left, right in self.outputs:
                context[left] += _mixed(up[right], up[left])
                context[right] += _mixed(up[left], up[right])
            for n in range(len(up) - 1, -1, -1):
                if self.labels[n] == VARIABLE:
                    colours[n] = _mixed(colours[n], context[n])
                    continue
                inner = _mixed(context[n], up[n])
                for place, o in enumerate(self.operands[n], start=1):
                    context[o] += _mixed(inner, up[o] + (0 if self.free[n] else place))
        return colours

    def texts(self, colours: Sequence[int]) -> list[str]:
        """The text of every node, variables numbered by their colours."""
        variables = [n for n, label in enumerate(self.labels) if label == VARIABLE]
        variables.sort(key=lambda n: colours[n])
        names = {n: f"v{k}" for k, n in enumerate(variables)}
        found: list[str] = []
        for n, label in enumerate(self.labels):
            if label == VARIABLE:
                found.append(names[n])
                continue
            inner = [found[o] for o in self.operands[n]]
            if self.free[n]:
                inner.sort()
            found.append(f"{label}.{self.picked[n]}({','.join(inner)})")
        return found


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
