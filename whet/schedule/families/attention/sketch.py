"""The sketch of products whose rows go through a chain of row stages."""

from __future__ import annotations

from whet.schedule.families.attention.lower import lower_attention
from whet.schedule.families.attention.match import AttentionTiling, find_attention
from whet.schedule.families.attention.nests import attention_nests
from whet.schedule.families.attention.price import attention_costs, attention_holes
from whet.schedule.families.family import Family

ATTENTION = Family(
    "attention",
    find_attention,
    AttentionTiling,
    attention_holes,
    attention_costs,
    lower_attention,
    attention_nests,
    kept=frozenset({("product", "rows"), ("product", "rows", "product")}),
)
