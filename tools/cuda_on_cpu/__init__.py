"""CUDA text, run on a CPU: what NVRTC would compile, seen at work without a GPU.

    text of a kernel  ->  g++, functions that are assembly replaced  ->  a library  ->  called

Every thread of a cluster is a fiber that runs until it waits for others; warps multiply matrices
lane by lane, as the instructions of tensor cores are described.  So addresses, widths, lanes and
barriers of the emitted text are tested, and with `checked` every access of every thread is looked
at: whether it is in bounds and aligned, reads what was written, races with another.

    device.h, device.cpp   types and functions that texts find; threads, barriers, checks
    compiled               texts as libraries, and programs that are run by their text
    driver, backend        whole models: a driver whose GPU is this process, and its backend

Times mean nothing here, and what only a GPU does is not seen: its compiler, and its scheduling.
"""
