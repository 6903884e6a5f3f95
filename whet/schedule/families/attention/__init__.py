"""The sketch of products whose rows go through a chain of row stages."""
