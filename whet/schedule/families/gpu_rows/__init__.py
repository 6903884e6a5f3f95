"""The sketch of stages along rows on a GPU: the threads of a row keep it in registers."""
