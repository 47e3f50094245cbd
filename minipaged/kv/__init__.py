"""The paged KV cache.

"The paper" is Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", SOSP 2023, arXiv 2309.06180. "vLLM" is vLLM v1.

- *block*: space for the keys and values of `block_size` tokens, in all layers. Its id is a number.
- *slot*: space for the keys and values of one token. Its number is `block_id * block_size + offset`.
- *block table*: the blocks of one sequence, in order.
- *reference count* (`ref_cnt`): how many block tables name a block.
- *null block*: block 0, which holds nothing and pads block tables.
- *cached*: a block is cached if it is full and can be found by its hash. A cached block may be in use or
  free.
- *prefix id*: a number that stands for all tokens up to the end of a cached block.

Read the modules in this order: `size` (how many bytes, how many blocks), `block_table` (where a token is),
`free_queue` and `block_pool` (which blocks are free, and how many tables name each of the others),
`copy_on_write` (sharing blocks), `manager` (the interface that the scheduler calls), `block_manager` (giving
sequences their blocks), `prefix_hash` and `prefix_cache` (finding blocks again), `swap` and `swap_cache`
(blocks in CPU memory), `cache` (the tensors). `breakdown` and `block_usage` count how a layout uses its
memory.

The layouts without blocks are in `minipaged/baseline/`.
"""
