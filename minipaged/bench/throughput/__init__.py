"""Output tokens per second, compared with other engines. Each has its own process, and runs alternate."""
