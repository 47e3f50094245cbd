"""Paged attention in compiled loops, and the writing of keys and values to the cache.

`attention` has the attention backend, and `cache_writes` has the function that replaces `write_kv`.
`query_groups` finds the tokens that read the same blocks, `threaded_attention` divides these groups among
threads, `loops` computes one group, and `softmax_row` computes the softmax.
"""
