"""Rules in text files, read only as they were proved.

    rule conv-share-input
      x activation 4
      w weight 4
      when dim(w, 2) == 1
      numeric exact
      set core
      lhs conv(x, w, strides=s, pads=p, dilations=d, groups=1)
      rhs ...
      given dim(x, 1) == dim(w, 1)
      proof 5c41...
      seal 8ad0...

`given` is what the proof takes from types (`whet.superopt.verify.conditions`).  `proof` is the
digest of the rule's certificate, which stands in a file of its own beside the rules
(`conv.proofs` beside `conv.rules`), because whoever applies rules does not need it:

    proof conv-share-input
      axiom conv.1c5a09e2
      solver z3 5.4.0
      prime 2147483647
      seed 0
      shape x=[2,3,4,5] w=[4,3,1,1] s=[1,2] p=[0,0,0,0] d=[1,1]
      symbolic x=[1,1,2,2] ...

The seal is a digest of all the lines above it, so that a rule that was changed after its proof
is refused, and so is a certificate that is not the rule's.  A file says nothing about when or
where it was made; `whet.superopt.rules.store` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NoReturn, cast

from whet.core.digest import digest_text
from whet.core.errors import ArtifactError, fail
from whet.graph.terms import Apply
from whet.ops.base import REGISTRY, Numeric
from whet.superopt.rules.rule import Certificate, Role, Rule, Variable

SUFFIX, PROOFS = ".rules", ".proofs"
ROLES = ("activation", "weight")


def family(rule: Rule) -> str:
    """The file a rule belongs to: the operator family of what its left side computes last."""
    root = rule.left[0]
    cls = REGISTRY.get(root.op) if isinstance(root, Apply) else None
    return cls.__module__.rpartition(".")[2] if cls is not None else "movement"


def sealed(lines: Sequence[str]) -> str:
    """The digest of lines, whatever their indentation."""
    return digest_text("\n".join(line.strip() for line in lines))


def read_rules(text: str, source: str = "rules", proofs: str | None = None) -> tuple[Rule, ...]:
    """The rules of a file, with their certificates if the text of these is given.

    Raises: `WH4001` for a rule without a proof or whose seal does not fit it, and for one whose
    certificate is missing or another's.
    """
    certificates = None if proofs is None else dict(map(_proof, _blocks(proofs, "proof")))
    return tuple(_proved(block, source, certificates) for block in _blocks(text, "rule"))


def read_candidates(text: str) -> tuple[Rule, ...]:
    """Rules as a person writes them, to be sent through the gates; proofs are ignored."""
    return tuple(_stated(block) for block in _blocks(text, "rule"))


Block = list[tuple[str, str]]
"""The lines of a rule, each cut after its first word."""


def _blocks(text: str, begin: str) -> Iterator[Block]:
    """The blocks of a file, each with its first word, without comments and indentation."""
    block: Block = []
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        word, _, rest = bare.partition(" ")
        if block and word == begin:
            yield block
            block = []
        block.append((word, rest))
    if block:
        yield block


def _all(block: Block, word: str) -> tuple[str, ...]:
    return tuple(rest for first, rest in block if first == word)


def _stated(block: Block) -> Rule:
    """The rule that the block claims."""
    variables = []
    for word, rest in block[1:]:
        role, _, rank = rest.partition(" ")
        if role in ROLES and rank.isdigit():
            variables.append(Variable(word, int(rank), cast(Role, role)))
    said = dict(block)
    name, numeric = said.get("rule", ""), said.get("numeric", "real")
    lhs, rhs = _all(block, "lhs"), _all(block, "rhs")
    if not name or not lhs or not rhs or numeric not in ("exact", "real"):
        fail("WH4001", f"rule '{name}' is incomplete", kind=ArtifactError)
    return Rule(
        name, tuple(variables), lhs, rhs, _all(block, "when"), cast(Numeric, numeric),
        core=said.get("set", "core") == "core", given=_all(block, "given"),
    )  # fmt: skip


def _proved(block: Block, source: str, certificates: Mapping[str, Certificate] | None) -> Rule:
    """The block's rule, if it is the one that was proved."""
    rule, said = _stated(block), dict(block)
    body = [f"{word} {rest}" for word, rest in block if word != "seal"]
    if "proof" not in said or said.get("seal") != sealed(body):
        _refuse(rule.name, source)
    if certificates is None:
        return rule
    certificate = certificates.get(said["proof"])
    if certificate is None:
        _refuse(rule.name, source)
    return rule.proved(certificate)


def _refuse(name: str, source: str) -> NoReturn:
    fail("WH4001", f"rule '{name}' in {source} has no valid proof", kind=ArtifactError,
         hint="whet rules verify checks rules and writes their certificates")  # fmt: skip


def _proof(block: Block) -> tuple[str, Certificate]:
    """The digest of the block, and what it says."""
    said = dict(block)
    try:
        certificate = Certificate(
            _all(block, "axiom"), said["solver"], int(said["prime"]), int(said["seed"]),
            _all(block, "shape"), _all(block, "symbolic"),
        )  # fmt: skip
    except (KeyError, ValueError):
        fail("WH4001", f"the proof of rule '{said.get('proof')}' is incomplete",
             kind=ArtifactError)  # fmt: skip
    return sealed([f"{word} {rest}" for word, rest in block]), certificate


# ---------------------------------------------------------------------------------- collections
def load_folder(folder: Path | Traversable, certified: bool = False) -> tuple[Rule, ...]:
    """All rules of a folder; their certificates are read only where they are asked for."""
    found: list[Rule] = []
    entries = {entry.name: entry for entry in folder.iterdir()} if folder.is_dir() else {}
    for name in sorted(n for n in entries if n.endswith(SUFFIX)):
        proofs = None
        if certified:
            beside = entries.get(name.removesuffix(SUFFIX) + PROOFS)
            proofs = beside.read_text() if beside is not None else ""
        found += read_rules(entries[name].read_text(), name, proofs)
    return tuple(found)


def shipped(certified: bool = False) -> tuple[Rule, ...]:
    """The rules that come with whet."""
    return load_folder(resources.files("whet.superopt.rules").joinpath("data"), certified)
