"""CUDA graphs: a decode step's kernels, recorded once for each batch size, and launched by one call.

A decode step is hundreds of small kernels, and the host spends time on the launch of each, however
short it runs. A captured step is launched as a whole. `buckets` has the batch sizes, `inputs` the
buffers that a captured step reads, `capture` what records, and `decode_graphs` puts them together.
"""
