"""Decode steps that are known beforehand: recorded once for each batch size, and launched by one call.

A decode step is hundreds of short kernels or calls, and the host spends time on the launch of each, however
short it runs. On a GPU, CUDA graphs launch a captured step as a whole: `buckets` has the batch sizes,
`capture` what records, and `decode_graphs` puts them together. On a CPU, `cpu_decode` writes a step's calls
of compiled code down, and the threads go through them by themselves. `inputs` has the buffers that both
read, and `decode_steps` which of them an engine has.
"""
