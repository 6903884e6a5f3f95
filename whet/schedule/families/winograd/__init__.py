"""The sketch of short windows by transformed tiles."""
