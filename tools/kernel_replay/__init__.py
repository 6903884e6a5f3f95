"""What the compiler chooses and generates, as text that is compared between commits.

models      the models that are replayed
record      the texts of a model's kernels
store       a replay on disk
compare     two replays, kernel by kernel
"""
