"""The bug zoo of chapter 5."""

from __future__ import annotations

from minipaged.course.zoo import Mutant

MUTANTS = (
    Mutant("5.1", "forgets_to_scale_the_sum", "total * shrink + weights", "total + weights"),
    Mutant("5.1", "forgets_to_scale_the_output", "output * shrink + weights", "output + weights"),
    Mutant(
        "5.1", "starts_at_minus_infinity", "(num_queries, 1), LOWEST)", '(num_queries, 1), float("-inf"))'
    ),
    Mutant("5.1", "starts_at_zero", "(num_queries, 1), LOWEST)", "(num_queries, 1), 0.0)"),
    Mutant("5.1", "no_maximum", "torch.maximum(greatest, part.amax(dim=1, keepdim=True))", "greatest * 0"),
    Mutant("5.1", "one_maximum_for_all_rows", "part.amax(dim=1, keepdim=True))", "part[:1].amax())"),
    Mutant("5.1", "divides_by_zero", "torch.where(total == 0, 1.0, total)", "total"),
    Mutant("5.1", "keeps_the_first_maximum", "        greatest = new_greatest\n", ""),
    Mutant(
        "5.1", "forgets_the_last_tile", "range(0, num_tokens, tile)", "range(0, num_tokens - tile + 1, tile)"
    ),
    Mutant("5.2", "forgets_the_scale", "one_query[None, :], 1) * scale", "one_query[None, :], 1)"),
    Mutant("5.2", "blocks_side_by_side", "seq * table_stride + i).to", "seq * table_stride).to"),
    Mutant("5.2", "one_table_for_all", "block_tables + seq * table_stride + i", "block_tables + i"),
    Mutant("5.2", "drops_the_last_block", "tl.cdiv(seq_len, BLOCK_SIZE)", "seq_len // BLOCK_SIZE"),
    Mutant(
        "5.2",
        "loads_past_the_end",
        "values_stride + at, mask=inside[:, None], other=0.0)",
        "values_stride + at)",
    ),
    Mutant("5.2", "counts_empty_slots", '        scores = tl.where(inside, scores, float("-inf"))\n', ""),
    Mutant("5.2", "the_wrong_kv_head", "(head // GROUP) * kv_head_stride", "(head % GROUP) * kv_head_stride"),
    Mutant("5.2", "forgets_to_shrink", "result = result * shrink + tl.sum", "result = result + tl.sum"),
    Mutant("5.2", "wraps_at_2_31", "table_stride + i).to(tl.int64)", "table_stride + i)"),
    Mutant("5.2", "keys_for_values", "keys + values_stride + at", "keys + at"),
    Mutant(
        "5.2",
        "expects_a_contiguous_query",
        "    query = query.contiguous()\n    output = torch.empty_like(query)",
        "    output = torch.empty(query.shape, device=query.device)",
    ),
    Mutant("5.3", "one_tile_row", "ROWS=max(16, triton.next_power_of_2(group))", "ROWS=16"),
    Mutant("5.3", "always_the_first_kv_head", "kv_layer + kv_head * kv_head_stride,", "kv_layer,"),
    Mutant(
        "5.3",
        "counts_empty_slots_in_a_tile",
        '        scores = tl.where(inside[None, :], scores, float("-inf"))\n',
        "",
    ),
    Mutant(
        "5.3",
        "loads_values_past_the_end",
        "values_stride + at, mask=inside[:, None], other=0.0)",
        "values_stride + at)",
    ),
    Mutant("5.3", "forgets_to_shrink_a_tile", "result * shrink[:, None] + tl.dot", "result + tl.dot"),
    Mutant(
        "5.3",
        "one_maximum_for_the_group",
        "tl.maximum(greatest, tl.max(scores, 1))",
        "tl.maximum(greatest, tl.min(tl.max(scores, 1), 0))",
    ),
    Mutant("5.3", "wraps_a_tile_at_2_31", "tl.load(table + i).to(tl.int64)", "tl.load(table + i)"),
    Mutant(
        "5.3",
        "heads_of_one_group_only",
        "(seq * tl.num_programs(0) + kv_head) * GROUP + rows",
        "seq * tl.num_programs(0) * GROUP + kv_head + rows",
    ),
    Mutant("5.4", "part_sizes_rounded_down", "tl.cdiv(num_blocks, num_splits)", "num_blocks // num_splits"),
    Mutant(
        "5.4",
        "parts_overlap",
        "        split * per_part,\n",
        "        tl.maximum(split * per_part - 1, 0),\n",
    ),
    Mutant("5.4", "empty_parts_are_nan", "    total = tl.where(empty, 1.0, total)\n", ""),
    Mutant(
        "5.4",
        "an_empty_part_has_weight",
        'tl.where(empty, float("-inf"), greatest + tl.log(total))',
        "tl.where(empty, 0.0, greatest + tl.log(total))",
    ),
    Mutant("5.4", "forgets_the_maximum", "greatest + tl.log(total))", "tl.log(total))"),
    Mutant("5.4", "forgets_the_sum", "greatest + tl.log(total))", "greatest)"),
    Mutant("5.4", "parts_are_not_divided", "result / total[:, None], mask", "result, mask"),
    Mutant(
        "5.4",
        "the_mean_of_the_parts",
        "torch.softmax(log_sums, dim=-1)",
        "torch.ones_like(log_sums) / log_sums.shape[-1]",
    ),
    Mutant(
        "5.4",
        "sums_overflow",
        "torch.softmax(log_sums, dim=-1)",
        "log_sums.exp() / log_sums.exp().sum(-1, keepdim=True)",
    ),
    Mutant("5.5", "writes_padding", "    if slot < 0:\n        return\n", ""),
    Mutant("5.5", "keys_only", "    tl.store(kv_layer + values_stride + at, v, mask=stored)\n", ""),
    Mutant(
        "5.5",
        "strides_of_the_key_for_the_value",
        "value + token * value_stride + head * value_head_stride",
        "value + token * key_stride + head * key_head_stride",
    ),
    Mutant(
        "5.5",
        "expects_contiguous_keys",
        "key + token * key_stride + head * key_head_stride",
        "key + token * NUM_KV_HEADS * HEAD_DIM + head * HEAD_DIM",
    ),
    Mutant("5.5", "the_slot_is_the_block", "slot // BLOCK_SIZE * block_stride", "slot * block_stride"),
    Mutant(
        "5.5",
        "a_slot_of_32_bits",
        "tl.load(slot_mapping + token)  #",
        "tl.load(slot_mapping + token).to(tl.int32)  #",
    ),
    Mutant(
        "5.5",
        "writes_the_padding_of_the_tile",
        "stored = numbers < NUM_KV_HEADS * HEAD_DIM",
        "stored = numbers < PADDED",
    ),
)
