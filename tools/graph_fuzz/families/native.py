"""Operators of whet's own domain: drawn from the samples that every operator defines."""

from __future__ import annotations

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.errors import WhetError
from whet.graph.export_operators import NATIVE_DOMAIN
from whet.ops import REGISTRY
from whet.ops.base import show_attribute


def native(g: Growth, name: str) -> Held | list[Held]:
    cls = REGISTRY[name]
    sample = cls.sample(g.draw.rng) if g.draw.chance(0.7) else g.draw.pick(cls.samples())
    arrays = sample.arrays(g.draw.rng)
    operands = []
    for array, t, domain in zip(arrays, sample.types, sample.domains or (None,) * len(arrays)):
        # Where anything goes, a value that is there may take its place.
        found = [v for v in g.visible() if v.type == t] if domain is None else []
        operands.append(g.draw.pick(found) if found and g.draw.chance(0.6) else g.operand(array))
    try:
        outputs = len(sample.op.infer_types(sample.types))
    except WhetError as error:
        raise Impossible from error
    if not sample.op.deterministic:
        raise Impossible
    shown = ", ".join(f"{k}={show_attribute(v)}" for k, v in sample.op.attributes().items())
    return g.emit(name, *operands, outputs=outputs, domain=NATIVE_DOMAIN, attributes=shown)


generates(*REGISTRY, domain=NATIVE_DOMAIN)(native)
