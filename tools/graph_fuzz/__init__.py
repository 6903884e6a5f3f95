"""A differential fuzzer of whole models: random ONNX graphs through the compiler, judged by the
interpreter in double precision.

    growth, families     a random model, grown node by node, with its values
    variants, calls      how it is compiled and called: target, threads, memory, cache
    evaluate, judge      what the results may be, and whether they are
    trial                one graph from its number to a verdict
    workers, campaign    many graphs in processes that may crash or hang
    shrink, store        a failure made small, and kept with a script that reproduces it
"""
