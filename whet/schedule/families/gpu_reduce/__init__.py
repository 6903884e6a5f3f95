"""The sketch of long reductions on a GPU: several threads share the terms of an output."""
