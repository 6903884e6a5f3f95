"""Candidates of searches for positions and their prices, for a whole population at once."""

from __future__ import annotations

import itertools

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.schedule.cost.numbers.gpus import WINDOW_NS
from whet.schedule.cost.work import lane_step, operations, reads
from whet.schedule.families.gpu_arg.lower import STEPS_AT_ONCE
from whet.schedule.families.gpu_arg.match import GpuArg
from whet.schedule.families.gpu_reduce.price import FEWEST_STEPS, meeting_ns
from whet.schedule.families.gpu_spatial.price import LOAD_SLOTS, THREAD_OVERHEAD
from whet.schedule.families.gpu_spatial.rates import (
    Work,
    kernel_ns,
    lines_of,
    nbytes_of,
    touched_bytes,
    wasted,
)
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population, population

LANES = (8, 32, 128, 256, 512, 1024)
THREADS = (128, 256, 512, 1024)
COMPARED = 6
"""Instructions that look at a term and keep it, or its position."""
PARTS = 3
"""Numbers that threads exchange for one of a sum: value, position, and which of them are better."""


def gpu_arg_holes(s: GpuArg, target: GpuTarget, threads: int) -> Population:
    """Shares of the terms that leave every thread some."""
    found = [
        (lanes, count, NEVER)
        for lanes, count in itertools.product(LANES, THREADS)
        if count % lanes == 0 and s.length >= FEWEST_STEPS * lanes
    ]
    return population(("lanes", "threads", "trigger"), found)


def gpu_arg_costs(s: GpuArg, target: GpuTarget, threads: int, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    lanes, per_block = holes["lanes"], holes["threads"]
    outputs, value = elements(s.stage.axes), s.reduce.value
    blocks = np.ceil(outputs * lanes / per_block)
    steps = np.ceil(s.length / lanes)
    places = 2.0 + 8.0 * (len(s.terms) - 1)
    each = places + COMPARED + operations(value) + len(reads(value)) * LOAD_SLOTS
    lines, nbytes = np.zeros(len(lanes)), np.full(len(lanes), nbytes_of(s.task.outputs))
    one = np.ones(len(lanes))
    for read in reads(value):
        lines += steps * lines_of(read, lane_step(read, s.terms[-1]), one, one)
        nbytes += touched_bytes(read) * wasted(read, s.terms[-1], ())
    rounds = np.maximum(np.ceil(steps / STEPS_AT_ONCE) - 1, 0)
    work = Work(blocks, per_block, THREAD_OVERHEAD + steps * each, lines, nbytes, rounds)
    ns = WINDOW_NS + kernel_ns(work, holes["trigger"] == AT_END, target)
    return np.asarray(ns + PARTS * meeting_ns(lanes, target))
