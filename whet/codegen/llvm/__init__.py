"""LLVM: explicit vectors as text IR, almost no mid-end passes (they cost 5x the compile time)."""
