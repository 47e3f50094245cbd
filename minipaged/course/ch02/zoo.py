"""The bug zoo of chapter 2."""

from __future__ import annotations

from minipaged.course.zoo import Mutant

MUTANTS = (
    Mutant("2.1", "needs_one_slot_more", "region.num_slots >= num_slots", "region.num_slots > num_slots"),
    Mutant("2.1", "leaves_empty_regions", "[rest] if rest.num_slots > 0 else []", "[rest]"),
    Mutant(
        "2.1", "looks_at_the_first_gap_only", "return region.start\n", "return region.start\n        break\n"
    ),
    Mutant(
        "2.1", "best_fit", "in enumerate(free)", "in sorted(enumerate(free), key=lambda e: e[1].num_slots)"
    ),
    Mutant("2.1", "loses_the_rest", "[rest] if rest.num_slots > 0 else []", "[]"),
    Mutant("2.1", "never_merges", "merged and merged[-1].end == each.start", "False"),
    Mutant("2.1", "merges_across_a_held_slot", "== each.start", ">= each.start - 1"),
    Mutant(
        "2.1",
        "the_nightly_job",
        "if merged and merged[-1].end == each.start:",
        "if merged and merged[-1].end == each.start and each == region:",
    ),
    Mutant("2.1", "a_new_list", "free[:] = merged", "free = merged"),
    Mutant("2.2", "forgets_the_region", "first = start + position", "first = position"),
    Mutant("2.2", "forgets_the_position", "first = start + position", "first = start"),
    Mutant("2.2", "keys_twice", "slots[1, first:end] = value", "slots[1, first:end] = key"),
    Mutant("2.2", "one_token_only", "end = first + len(key)", "end = first + 1"),
    Mutant("2.2", "one_slot_late", "first = start + position", "first = start + position + 1"),
    Mutant("2.2", "reads_one_too_few", "end = start + num_tokens", "end = start + num_tokens - 1"),
    Mutant("2.2", "reads_one_too_many", "end = start + num_tokens", "end = start + num_tokens + 1"),
    Mutant(
        "2.2",
        "reads_a_copy",
        "return slots[0, start:end], slots[1, start:end]",
        "return slots[0, start:end].clone(), slots[1, start:end].clone()",
    ),
    Mutant(
        "2.2",
        "values_first",
        "slots[0, start:end], slots[1, start:end]",
        "slots[1, start:end], slots[0, start:end]",
    ),
    Mutant("2.3", "no_mask", 'scores.masked_fill(is_later, float("-inf"))', "scores"),
    Mutant(
        "2.3",
        "does_not_see_itself_first",
        "position[None, :] > own[:, None]",
        "position[None, :] >= own[:, None] + (own[:, None] == 0)",
    ),
    Mutant(
        "2.3", "sees_one_too_far", "position[None, :] > own[:, None]", "position[None, :] > own[:, None] + 1"
    ),
    Mutant(
        "2.3",
        "queries_begin_at_position_0",
        "position[num_tokens - num_queries :]",
        "position[:num_queries]",
    ),
    Mutant("2.3", "masks_with_zero", 'float("-inf")', "0.0"),
    Mutant("2.3", "forgets_the_scale", ") * scale", ")"),
    Mutant("2.3", "softmax_over_the_queries", "dim=-1", "dim=-2"),
    Mutant("2.3", "softmax_over_the_heads", "dim=-1", "dim=0"),
    Mutant("2.3", "divides_by_the_scale", ") * scale", ") / scale"),
    Mutant(
        "2.3",
        "masks_after_the_softmax",
        'scores.masked_fill(is_later, float("-inf")).softmax(dim=-1)',
        "scores.softmax(dim=-1).masked_fill(is_later, 0.0)",
    ),
    Mutant(
        "2.3",
        "heads_in_turns",
        "keys = keys.repeat_interleave(group, dim=1)",
        "keys = keys.repeat(1, group, 1)",
    ),
    Mutant(
        "2.3",
        "values_of_other_heads",
        "values = values.repeat_interleave(group, dim=1)",
        "values = values.repeat(1, group, 1)",
    ),
    Mutant(
        "2.4",
        "the_mean_output_decides",
        "num_steps=longest_output",
        "num_steps=sum(member.num_output_tokens for member in members) // len(members)",
    ),
    Mutant(
        "2.4", "computes_the_last_token", "member.num_output_tokens - 1 for", "member.num_output_tokens for"
    ),
    Mutant(
        "2.4",
        "idle_while_it_decodes",
        "sum(longest_output - member.num_output_tokens for member in members)",
        "longest_output * len(members)",
    ),
    Mutant(
        "2.4",
        "prompts_and_outputs_together",
        "sum(longest_prompt - member.num_prompt_tokens for member in members)",
        "sum(longest_prompt + longest_output - member.num_prompt_tokens - member.num_output_tokens "
        "for member in members)",
    ),
    Mutant("2.4", "one_step_less", "num_steps=longest_output", "num_steps=longest_output - 1"),
    Mutant(
        "2.4",
        "drops_the_last_batch",
        "range(0, len(queue), batch_size)",
        "range(0, len(queue) - batch_size + 1, batch_size)",
    ),
    Mutant(
        "2.4",
        "sorts_the_queue",
        "queue[start : start + batch_size]",
        "sorted(queue, key=lambda each: each.num_output_tokens)[start : start + batch_size]",
    ),
    Mutant("2.5", "rounds_up_once_too_often", "while 2**order < num_slots", "while 2**order <= num_slots"),
    Mutant("2.5", "from_the_largest_block", "found = large_enough[0]", "found = large_enough[-1]"),
    Mutant("2.5", "keeps_the_whole_block", "range(order, found)", "range(0)"),
    Mutant("2.5", "frees_the_lower_halves", "free[half].add(start + 2**half)", "free[half].add(start)"),
    Mutant("2.5", "forgets_the_smallest_half", "range(order, found)", "range(order + 1, found)"),
    Mutant("2.5", "buddy_is_the_next_block", "start ^ 2**order", "start + 2**order"),
    Mutant(
        "2.5",
        "merges_once",
        "while (buddy := start ^ 2**order) in free[order]",
        "if (buddy := start ^ 2**order) in free[order]",
    ),
    Mutant("2.5", "keeps_its_own_start", "start = min(start, buddy)", "start = start"),
    Mutant("2.5", "the_buddy_stays_free", "free[order].remove(buddy)", "pass"),
)
