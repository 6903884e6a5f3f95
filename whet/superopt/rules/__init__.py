"""Rewrite rules as data: text files with both sides, guards and a certificate."""
