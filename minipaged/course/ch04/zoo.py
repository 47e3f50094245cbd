"""The bug zoo of chapter 4."""

from __future__ import annotations

from minipaged.course.zoo import Mutant

MUTANTS = (
    Mutant("4.1", "counts_not_raised", "ref_cnt[block_id] += 1", "ref_cnt[block_id] += 0"),
    Mutant("4.1", "a_count_of_two", "ref_cnt[block_id] += 1", "ref_cnt[block_id] = 2"),
    Mutant("4.1", "one_table_for_both", "return list(table)", "return table"),
    Mutant("4.1", "counts_the_last_block_alone", "in table:", "in table[-1:]:"),
    Mutant("4.1", "leaves_out_the_last_block", "return list(table)", "return list(table[:-1])"),
    Mutant("4.2", "takes_blocks_from_others", "if ref_cnt[block_id] == 0:\n", "if ref_cnt[block_id] >= 0:\n"),
    Mutant("4.2", "the_count_becomes_zero", "ref_cnt[block_id] -= 1", "ref_cnt[block_id] = 0"),
    Mutant("4.2", "the_table_keeps_its_blocks", "    table.clear()\n", ""),
    Mutant("4.2", "the_head_first", "in reversed(table)", "in table"),
    Mutant("4.2", "a_count_below_zero", "any(ref_cnt[block_id] == 0", "any(ref_cnt[block_id] > 10**6"),
    Mutant("4.2", "an_error_halfway", "any(ref_cnt[block_id] == 0", "all(ref_cnt[block_id] == 0"),
    Mutant(
        "4.2",
        "checks_on_the_way",
        """    if any(ref_cnt[block_id] == 0 for block_id in table):
        raise InvariantError(f"table {table} names a free block")
    freed = []
    for block_id in reversed(table):
""",
        """    freed = []
    for block_id in reversed(table):
        if ref_cnt[block_id] == 0:
            raise InvariantError("the block is free")
""",
    ),
    Mutant("4.2", "checks_the_tail_alone", "== 0 for block_id in table)", "== 0 for block_id in table[-1:])"),
    Mutant("4.2", "gives_nothing_back", "freed.append(block_id)", "pass"),
    Mutant("4.3", "writes_into_shared_blocks", "pool.ref_cnt[table[i]] > 1", "pool.ref_cnt[table[i]] > 99"),
    Mutant("4.3", "the_last_holder_copies_too", "pool.ref_cnt[table[i]] > 1", "pool.ref_cnt[table[i]] > 0"),
    Mutant(
        "4.3", "copies_all_that_is_shared", "range(start // block_size,", "range(0 * start // block_size,"
    ),
    Mutant(
        "4.3", "copies_the_last_block_alone", "range(start // block_size,", "range((end - 1) // block_size,"
    ),
    Mutant(
        "4.3", "copies_a_full_block", "range(start // block_size,", "range(max(0, start - 1) // block_size,"
    ),
    Mutant("4.3", "copies_backwards", "BlockCopy(source, target)", "BlockCopy(target, source)"),
    Mutant("4.3", "the_table_names_the_old_block", "        table[i] = target\n", ""),
    Mutant("4.3", "the_old_count_stays", "        pool.release(source)", "        pass"),
    Mutant(
        "4.3",
        "a_count_is_lowered_twice",
        "        pool.release(source)  # another table still names it\n",
        "        pool.release(source)\n        pool.release(source)\n",
    ),
    Mutant("4.3", "one_block_short", "-(-end // block_size)", "end // block_size"),
    Mutant("4.3", "a_block_too_many", "-(-end // block_size)", "end // block_size + 1"),
    Mutant("4.3", "forgets_that_copies_need_room", "len(shared) + max(0,", "max(0,"),
    Mutant(
        "4.3",
        "a_long_table_makes_room",
        "max(0, num_blocks - len(table)) > pool.num_free",
        "num_blocks - len(table) > pool.num_free",
    ),
    Mutant("4.3", "copies_what_comes_later", "min(num_blocks, len(table))", "len(table)"),
    Mutant("4.3", "leaves_a_block_unused", "> pool.num_free", ">= pool.num_free"),
    Mutant("4.4", "the_first_layer_alone", "cache[:, :, targets] = ", "cache[:1, :, targets] = "),
    Mutant(
        "4.4",
        "keys_alone",
        "cache[:, :, targets] = cache[:, :, sources]",
        "cache[:, 0, targets] = cache[:, 0, sources]",
    ),
    Mutant(
        "4.4",
        "one_after_the_other",
        "cache[:, :, targets] = cache[:, :, sources]",
        "for source, target in zip(sources, targets):\n        cache[:, :, target] = cache[:, :, source]",
    ),
    Mutant(
        "4.4",
        "from_target_to_source",
        "cache[:, :, targets] = cache[:, :, sources]",
        "cache[:, :, sources] = cache[:, :, targets]",
    ),
    Mutant(
        "4.4",
        "moves_and_clears",
        "cache[:, :, targets] = cache[:, :, sources]",
        "cache[:, :, targets] = cache[:, :, sources]\n    cache[:, :, sources] = 0",
    ),
    Mutant(
        "4.5",
        "one_list_for_all",
        "[table] + [fork(table, ref_cnt) for _ in range(num_samples - 1)]",
        "[table] * num_samples",
    ),
    Mutant("4.5", "a_fork_too_many", "range(num_samples - 1)", "range(num_samples)"),
    Mutant(
        "4.5",
        "the_parent_stays_outside",
        "[table] + [fork(table, ref_cnt) for _ in range(num_samples - 1)]",
        "[fork(table, ref_cnt) for _ in range(num_samples)]",
    ),
    Mutant(
        "4.5",
        "copies_after_the_write",
        """    copy_blocks(cache, copies)
    for table, kv in zip(tables, new_kv, strict=True):
        cache[:, :, table[position // block_size], position % block_size] = kv
""",
        """    for table, kv in zip(tables, new_kv, strict=True):
        cache[:, :, table[position // block_size], position % block_size] = kv
    copy_blocks(cache, copies)
""",
    ),
    Mutant("4.5", "forgets_the_copies", "    copy_blocks(cache, copies)\n", ""),
    Mutant(
        "4.5",
        "writes_through_the_first_table",
        "cache[:, :, table[position",
        "cache[:, :, tables[0][position",
    ),
    Mutant("4.5", "all_in_the_first_slot", "position % block_size] = kv", "0] = kv"),
    Mutant("4.5", "over_the_shared_blocks", "1 - shared / unshared", "unshared / max(1, shared) - 1"),
    Mutant("4.5", "what_is_left", "1 - shared / unshared", "shared / unshared"),
    Mutant("4.6", "forgets_the_past", "cum_logprobs[parent] + logprob", "logprob"),
    Mutant("4.6", "the_worst_first", "(-each.cum_logprob,", "(each.cum_logprob,"),
    Mutant(
        "4.6", "one_of_each_beam", "for token_id, logprob in likely", "for token_id, logprob in likely[:1]"
    ),
    Mutant("4.6", "ties_by_token", "each.parent, each.token_id", "each.token_id, each.parent"),
    Mutant("4.6", "all_of_them", "extensions[:beam_width]", "extensions"),
    Mutant(
        "4.6",
        "frees_before_it_forks",
        """    children = [fork(tables[parent], pool.ref_cnt) for parent in parents]
    for table in tables:
        for block_id in free(table, pool.ref_cnt):
            pool.put_back(block_id)
    return children
""",
        """    old = [list(table) for table in tables]
    for table in tables:
        for block_id in free(table, pool.ref_cnt):
            pool.put_back(block_id)
    return [fork(old[parent], pool.ref_cnt) for parent in parents]
""",
    ),
    Mutant(
        "4.6",
        "a_child_takes_over_a_freed_table",
        "children = [fork(tables[parent], pool.ref_cnt) for parent in parents]",
        "children = [list(tables[p]) if parents.index(p) == i else fork(tables[p], pool.ref_cnt) "
        "for i, p in enumerate(parents)]",
    ),
    Mutant(
        "4.6",
        "frees_only_the_childless",
        "for table in tables:",
        "for table in [each for i, each in enumerate(tables) if i not in parents]:",
    ),
    Mutant("4.6", "blocks_are_lost", "            pool.put_back(block_id)", "            pass"),
    Mutant(
        "4.6",
        "forks_by_rank",
        "fork(tables[parent], pool.ref_cnt) for parent in parents",
        "fork(tables[i], pool.ref_cnt) for i in range(len(parents))",
    ),
)
