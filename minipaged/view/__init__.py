"""What a terminal shows: the pool and its blocks, reports of benchmarks, amounts of memory."""
