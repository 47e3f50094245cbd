"""Workloads, and a simulation of the engine's scheduler and memory on a simulated clock.

`lengths` and `workload` need only numpy and the standard library, since the other engines of a benchmark
import them too.

Read the simulation in this order: `timed_request` (what arrives), `simulation` (the engine without its
model), `step_time` and `device` (how long a step takes), `measures` (what is measured), `run` (how a
simulation is run). Then `systems` and `paper/` (the paper's systems and figures), and `mirror`,
`fitted_step_time` and `calibration` (how well the simulation predicts a real engine).
"""
