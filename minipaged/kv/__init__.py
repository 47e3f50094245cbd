"""The paged KV cache.

"The paper" is Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", SOSP 2023, arXiv 2309.06180. "vLLM" is vLLM v1.

- *block*: room for the keys and values of `block_size` tokens, in all layers; a number.
- *slot*: room for one token: `block_id * block_size + offset`.
- *block table*: the blocks of one sequence, in order.
- *reference count* (`ref_cnt`): how many block tables name a block.
- *null block*: block 0, which holds nothing and pads block tables.
- *cached*: full, and findable by its hash. A block may be cached while it is in use, or free.
- *prefix id*: a number for everything up to the end of a cached block.

To read in this order: `size` (how many bytes, how many blocks), `block_table` (where a token is),
`free_queue` and `block_pool` (who holds a block), `copy_on_write` (sharing blocks), `manager` (what the
scheduler asks for) and `block_manager` (giving sequences their blocks), `prefix_hash` and `prefix_cache`
(finding blocks again), `swap` (blocks in CPU memory), `cache` (the tensors). `breakdown` and `block_usage`
count what a layout does with its memory.

The layouts without blocks are in `minipaged/baseline/`.
"""
