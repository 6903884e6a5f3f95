"""Expressions, tensor expressions and loop programs."""
