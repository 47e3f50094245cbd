"""Output tokens per second, beside other engines: each in a process of its own, in alternating runs."""
