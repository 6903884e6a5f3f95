"""Packages that only some commands need, and the extra that brings them."""

from __future__ import annotations

EXTRAS = {"z3": "rules", "numba": "rules", "ray": "ray", "cuda": "cuda"}
"""By the name that they are imported by."""
