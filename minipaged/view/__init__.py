"""Output for a terminal: the pool and its blocks, reports of benchmarks, amounts of memory."""
