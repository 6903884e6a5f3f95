"""Other runtimes that run the same model, each in a process of its own.

A worker process holds one runtime with its threads and memory.  Parent and worker talk over
pipes in length-prefixed frames of JSON and plain array bytes.
"""
