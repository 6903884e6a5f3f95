"""Equations that follow from the laws and shorten proofs."""

from __future__ import annotations

from collections.abc import Mapping

from whet.ops.base import Law, law

LEMMAS: Mapping[str, Law] = {
    "lemma.matmul-three-columns": law(
        "matmul(a, concat(b, c, d, axis=1)) = "
        "concat(matmul(a, b), matmul(a, c), matmul(a, d), axis=1)", "exact",
        a=(2, 3), b=(3, 4), c=(3, 1), d=(3, 2)),
    "lemma.conv-three-filters": law(
        "conv(x, concat(w, v, u, axis=0), strides=s, pads=p, dilations=d, groups=1) = "
        "concat(conv(x, w, strides=s, pads=p, dilations=d, groups=1), "
        "conv(x, v, strides=s, pads=p, dilations=d, groups=1), "
        "conv(x, u, strides=s, pads=p, dilations=d, groups=1), axis=1)", "exact",
        x=(2, 3, 4, 5), w=(4, 3, 3, 3), v=(2, 3, 3, 3), u=(1, 3, 3, 3),
        s=(1, 2), p=(1, 0, 1, 2), d=(1, 1)),
    "lemma.relu-of-three": law(
        "relu(concat(x, y, z, axis=k)) = concat(relu(x), relu(y), relu(z), axis=k)", "exact",
        x=(2, 3), y=(4, 3), z=(1, 3), k=0),
}  # fmt: skip
"""Equations that follow from the laws and shorten proofs; each is proved before it is used."""
