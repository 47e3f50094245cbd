"""Workloads for benchmarks and simulations. They need only numpy and the standard library."""
