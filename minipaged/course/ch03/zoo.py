"""The bug zoo of chapter 3."""

from __future__ import annotations

from minipaged.course.zoo import Mutant

MUTANTS = (
    Mutant("3.1", "counts_blocks_from_one", "position // block_size,", "position // block_size + 1,"),
    Mutant("3.1", "rounds_up", "position // block_size,", "-(-position // block_size),"),
    Mutant("3.1", "counts_offsets_from_one", "position % block_size", "position % block_size + 1"),
    Mutant("3.1", "offset_from_the_end", "position % block_size", "block_size - 1 - position % block_size"),
    Mutant("3.1", "no_table", "block_table[block] *", "block *"),
    Mutant("3.1", "always_the_last_block", "block_table[block]", "block_table[-1]"),
    Mutant("3.1", "forgets_the_offset", "* block_size + offset", "* block_size"),
    Mutant("3.1", "adds_instead", "block_table[block] * block_size", "block_table[block] + block_size"),
    Mutant("3.2", "forgets_the_last_token", "np.arange(start, end,", "np.arange(start, end - 1,"),
    Mutant("3.2", "includes_the_end", "np.arange(start, end,", "np.arange(start, end + 1,"),
    Mutant("3.2", "begins_with_the_sequence", "np.arange(start, end,", "np.arange(0, end - start,"),
    Mutant("3.2", "wraps_at_2_31", "block_ids[blocks].astype(np.int64)", "block_ids[blocks]"),
    Mutant(
        "3.2",
        "straight_on_from_the_first_block",
        "block_ids[blocks].astype(np.int64) * block_size + offsets",
        "block_ids[blocks[0]].astype(np.int64) * block_size + offsets[0] + positions - start",
    ),
    Mutant("3.2", "no_table_at_all", "return block_ids[blocks].astype(np.int64)", "return blocks"),
    Mutant("3.2", "forgets_the_offsets", "* block_size + offsets", "* block_size"),
    Mutant("3.3", "the_last_given_first", "list(block_ids)[::-1]", "list(block_ids)"),
    Mutant("3.3", "the_longest_free_first", "self._stack.pop()", "self._stack.pop(0)"),
    Mutant("3.3", "an_empty_list_breaks", "if not self._stack:", "if False:"),
    Mutant("3.3", "a_block_freed_twice", "if block_id in self._free:", "if False:"),
    Mutant("3.3", "forgets_who_left", "        self._free.remove(block_id)\n", ""),
    Mutant("3.3", "always_one_block_more", "-(-num_tokens // block_size)", "num_tokens // block_size + 1"),
    Mutant("3.3", "forgets_the_last_block", "-(-num_tokens // block_size)", "num_tokens // block_size"),
    Mutant("3.3", "forgets_what_is_there", " - len(block_table)", ""),
    Mutant("3.3", "never_takes_the_last_one", "needed > len(free_list)", "needed >= len(free_list)"),
    Mutant(
        "3.3",
        "takes_before_it_looks",
        "    if needed > len(free_list):\n"
        "        return False\n"
        "    for _ in range(needed):\n"
        "        block_table.append(free_list.pop())\n",
        "    taken = [free_list.pop() for _ in range(min(needed, len(free_list)))]\n"
        "    if len(taken) < needed:\n"
        "        return False\n"
        "    block_table.extend(taken)\n",
    ),
    Mutant(
        "3.3",
        "keeps_what_it_got",
        "        return False\n    for _ in range(needed):",
        "        needed = len(free_list)\n    for _ in range(needed):",
    ),
    Mutant("3.4", "forgets_the_values", "    values[slot_mapping] = value\n", ""),
    Mutant("3.4", "keys_for_values", "values[slot_mapping] = value", "values[slot_mapping] = key"),
    Mutant("3.4", "writes_into_a_copy", "= kv_layer.flatten(1, 2)\n", "= kv_layer.flatten(1, 2).clone()\n"),
    Mutant(
        "3.4",
        "one_after_the_other",
        "keys[slot_mapping] = key",
        "keys[slot_mapping[0] : slot_mapping[0] + len(key)] = key",
    ),
    Mutant("3.4", "keeps_the_tail", ".flatten(1, 2)[:, :seq_len]", ".flatten(1, 2)"),
    Mutant("3.4", "drops_the_last_block", "-(-seq_len // block_size)", "seq_len // block_size"),
    Mutant("3.4", "blocks_in_their_own_order", ".long()  #", ".long().sort().values  #"),
    Mutant(
        "3.4",
        "blocks_side_by_side",
        "block_table[:num_blocks].long()",
        "block_table[0] + torch.arange(num_blocks)",
    ),
    Mutant("3.4", "mixes_keys_and_values", "return keys, values", "return values, keys"),
    Mutant("3.5", "pads_with_minus_one", "longest), NULL_BLOCK,", "longest), -1,"),
    Mutant("3.5", "pads_in_front", "row[: len(table)] = table", "row[longest - len(table) :] = table"),
    Mutant("3.5", "as_long_as_the_shortest", "max(len(table)", "min(len(table)"),
    Mutant("3.5", "wide_tables", "dtype=np.int32", "dtype=np.int64"),
    Mutant("3.5", "one_table_for_all", "metadata.block_tables[s]", "metadata.block_tables[0]"),
    Mutant(
        "3.5",
        "does_not_see_itself",
        "metadata.block_tables[s], seq_len)",
        "metadata.block_tables[s], seq_len - 1)",
    ),
    Mutant(
        "3.5",
        "all_that_is_in_the_table",
        "metadata.block_tables[s], seq_len)",
        "metadata.block_tables[s], metadata.block_tables.shape[1] * kv_layer.shape[2])",
    ),
    Mutant(
        "3.5",
        "as_long_as_the_longest",
        "metadata.block_tables[s], seq_len)",
        "metadata.block_tables[s], max(metadata.seq_lens_list))",
    ),
    Mutant("3.5", "rows_of_decodes_only", "slice(starts[s], starts[s + 1])", "slice(s, s + 1)"),
    Mutant("3.5", "forgets_the_scale", "keys, values, scale)", "keys, values, 1.0)"),
)
