"""What compiled loops on a CPU are made of: numba, a few of the processor's own instructions, and threads."""
