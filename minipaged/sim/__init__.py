"""Workloads, and a simulation of the engine: its scheduler and its memory, on a clock of their own.

`lengths` and `workload` need only numpy and the standard library, since peers of a benchmark import them too.

Read the simulation in this order: `timed_request` (what arrives), `simulation` (the engine without its
model), `step_time` and `device` (how long a step takes), `measures`, `run`. Then `systems` and `paper/` (the
paper's systems and figures), and `mirror`, `fitted_step_time` and `calibration` (how good all this is).
"""
