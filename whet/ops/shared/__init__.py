"""Geometry, formulas and index arithmetic that operators of several families share."""
