"""Rules in text files: written byte for byte alike, read only with a proof.

    rule conv-share-input
      x activation 4
      w weight 4
      when dim(w, 2) == 1
      numeric exact
      set core
      lhs conv(x, w, strides=s, pads=p, dilations=d, groups=1)
      rhs ...
      axiom conv.1c5a09e2
      solver z3 5.4.0
      prime 2147483647
      seed 0
      shape x=[2,3,4,5] w=[4,3,1,1] s=[1,2] p=[0,0,0,0] d=[1,1]
      symbolic x=[1,1,2,2] ...
      seal 8ad0...

The seal is a digest of all the lines above it, so that a rule that was changed after its proof
is refused.  A file says nothing about when or where it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import cast

from whet.core.digest import digest_text
from whet.core.errors import ArtifactError, fail
from whet.graph.terms import Apply
from whet.ops.base import REGISTRY, Numeric
from whet.superopt.rules.rule import Certificate, Role, Rule, Variable

SUFFIX = ".rules"
HEADER = "# Proved rewrite rules: whet rules verify replays the proofs."


def family(rule: Rule) -> str:
    """The file a rule belongs to: the operator family of what its left side computes last."""
    root = rule.left[0]
    cls = REGISTRY.get(root.op) if isinstance(root, Apply) else None
    return cls.__module__.rpartition(".")[2] if cls is not None else "movement"


def write_rules(rules: Iterable[Rule]) -> str:
    """The text of a file; unproved rules have no place in it."""
    blocks = [HEADER]
    for rule in sorted(rules, key=lambda r: (r.name, r.hash)):
        if rule.certificate is None:
            fail("WH4001", f"rule '{rule.name}' has no proof and cannot be stored",
                 kind=ArtifactError)  # fmt: skip
        lines = list(_lines(rule, rule.certificate))
        blocks.append("\n".join([*lines, f"  seal {_seal(lines)}"]))
    return "\n\n".join(blocks) + "\n"


def _lines(rule: Rule, certificate: Certificate) -> Iterator[str]:
    yield f"rule {rule.name}"
    for v in rule.variables:
        yield f"  {v.name} {v.role} {v.rank}"
    for key, values in (
        ("when", rule.when),
        ("numeric", (rule.numeric,)),
        ("set", ("core" if rule.core else "composite",)),
        ("lhs", rule.lhs),
        ("rhs", rule.rhs),
        ("axiom", certificate.axioms),
        ("solver", (certificate.solver,)),
        ("prime", (str(certificate.prime),)),
        ("seed", (str(certificate.seed),)),
        ("shape", certificate.shapes),
        ("symbolic", certificate.symbolic),
    ):
        for value in values:
            yield f"  {key} {value}".rstrip()


def _seal(lines: Sequence[str]) -> str:
    return digest_text(*(line.strip() for line in lines))


def read_rules(text: str, source: str = "rules") -> tuple[Rule, ...]:
    """The rules of a file.

    Raises: `WH4001` for a rule without a certificate or whose seal does not fit it.
    """
    return tuple(_proved(block, source) for block in _blocks(text))


def read_candidates(text: str) -> tuple[Rule, ...]:
    """Rules as a person writes them, to be sent through the gates; certificates are ignored."""
    return tuple(_stated(block) for block in _blocks(text))


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each rule, without comments and indentation."""
    block: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if bare.split()[0] == "rule" and block:
            yield block
            block = []
        block.append(bare)
    if block:
        yield block


def _fields(block: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in block:
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def _stated(block: Sequence[str]) -> Rule:
    """The rule that the block claims."""
    variables = []
    for line in block[1:]:
        words = line.split()
        if len(words) == 3 and words[1] in ("activation", "weight") and words[2].isdigit():
            variables.append(Variable(words[0], int(words[2]), cast(Role, words[1])))
    fields = _fields(block)
    name, lhs, rhs = fields.get("rule", [""])[0], fields.get("lhs", []), fields.get("rhs", [])
    numeric = fields.get("numeric", ["real"])[0]
    if not name or not lhs or not rhs or numeric not in ("exact", "real"):
        fail("WH4001", f"rule '{name}' is incomplete", kind=ArtifactError)
    core = fields.get("set", ["core"])[0] == "core"
    when = tuple(fields.get("when", ()))
    return Rule(name, tuple(variables), tuple(lhs), tuple(rhs), when, cast(Numeric, numeric),
                core=core)  # fmt: skip


def _proved(block: Sequence[str], source: str) -> Rule:
    """The block's rule with its certificate."""
    rule, fields = _stated(block), _fields(block)
    body = [line for line in block if not line.startswith("seal ")]
    sealed = fields.get("seal") == [_seal(body)]
    try:
        if not sealed:
            raise KeyError("seal")
        certificate = Certificate(
            tuple(fields.get("axiom", ())), fields["solver"][0], int(fields["prime"][0]),
            int(fields["seed"][0]), tuple(fields["shape"]), tuple(fields["symbolic"]),
        )  # fmt: skip
    except (KeyError, ValueError):
        fail("WH4001", f"rule '{rule.name}' in {source} has no valid proof", kind=ArtifactError,
             hint="whet rules verify checks rules and writes their certificates")  # fmt: skip
    return rule.proved(certificate)


# ---------------------------------------------------------------------------------- collections
def write_folder(rules: Sequence[Rule], folder: Path) -> tuple[Path, ...]:
    """One file per family, every claim once; files of families without rules are removed."""
    by_family: dict[str, list[Rule]] = {}
    for rule in {r.hash: r for r in rules}.values():
        by_family.setdefault(family(rule), []).append(rule)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"*{SUFFIX}"):
        if old.stem not in by_family:
            old.unlink()
    written = []
    for name, members in sorted(by_family.items()):
        path = folder / f"{name}{SUFFIX}"
        path.write_text(write_rules(members))
        written.append(path)
    return tuple(written)


def load_folder(folder: Path) -> tuple[Rule, ...]:
    """All rules of a folder, each proved."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    return tuple(rule for path in files for rule in read_rules(path.read_text(), path.name))


def shipped() -> tuple[Rule, ...]:
    """The rules that come with whet."""
    folder = resources.files("whet.superopt.rules").joinpath("data")
    found: list[Rule] = []
    if folder.is_dir():
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.name.endswith(SUFFIX):
                found += read_rules(entry.read_text(), entry.name)
    return tuple(found)
