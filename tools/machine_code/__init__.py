"""Machine code of NVIDIA GPUs, looked at without one.

    cubin  ->  nvdisasm  ->  instructions with their control fields  ->  one warp, replayed

What the compiler has decided is in the code: how long an instruction holds its warp up, which
barrier a load gives back and which one a use waits for.  With latencies that are assumed, that says
what one warp waits for when nothing else is in its way: whether loads are under way together, what
stands behind the wait for inputs, how long the end of a kernel is.  It is no time: other warps,
memory and the launch are not in it.

    sass      instructions from what nvdisasm prints
    replay    the way of a warp through them, and its clock
"""
