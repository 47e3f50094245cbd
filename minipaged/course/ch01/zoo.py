"""The bug zoo of chapter 1."""

from __future__ import annotations

from minipaged.course.zoo import Mutant

MUTANTS = (
    Mutant("1.1", "forgets_the_values", "2 * num_kv_heads * head_dim", "num_kv_heads * head_dim"),
    Mutant("1.1", "forgets_the_layers", "numbers_per_layer * num_layers *", "numbers_per_layer *"),
    Mutant("1.1", "counts_bits", "num_layers * dtype_bytes", "num_layers * dtype_bytes * 8"),
    Mutant("1.1", "always_two_bytes", "num_layers * dtype_bytes", "num_layers * 2"),
    Mutant("1.1", "a_float", "return numbers_per_layer", "return 1.0 * numbers_per_layer"),
    Mutant(
        "1.2",
        "share_of_what_is_left",
        "int(device_bytes * utilization) - weights_bytes - activation_bytes",
        "int((device_bytes - weights_bytes - activation_bytes) * utilization)",
    ),
    Mutant("1.2", "forgets_the_activations", " - activation_bytes", ""),
    Mutant(
        "1.2",
        "rounds_up",
        "max(0, kv_cache_bytes) // bytes_per_block",
        "-(-max(0, kv_cache_bytes) // bytes_per_block)",
    ),
    Mutant("1.2", "negative_blocks", "max(0, kv_cache_bytes)", "kv_cache_bytes"),
    Mutant("1.2", "forgets_the_null_block", "max(0, num_blocks - 1)", "num_blocks"),
    Mutant("1.2", "a_negative_length", "max(0, num_blocks - 1)", "(num_blocks - 1)"),
    Mutant(
        "1.3",
        "rounds_the_request_down",
        "-(-max_model_len // block_size)",
        "max(1, max_model_len // block_size)",
    ),
    Mutant(
        "1.3", "always_one_block_more", "-(-max_model_len // block_size)", "(max_model_len // block_size + 1)"
    ),
    Mutant("1.3", "no_rounding_to_blocks", "-(-max_model_len // block_size)", "(max_model_len / block_size)"),
    Mutant(
        "1.3", "whole_requests_only", "num_blocks / blocks_per_request", "num_blocks // blocks_per_request"
    ),
    Mutant(
        "1.3",
        "blocks_of_the_mean_length",
        "blocks = [-(-length // block_size) for length in lengths]",
        "blocks = [-(-sum(lengths) // len(lengths) // block_size)] * len(lengths)",
    ),
    Mutant(
        "1.3",
        "mean_of_the_ratios",
        "num_blocks * len(blocks) / sum(blocks)",
        "sum(num_blocks / each for each in blocks) / len(blocks)",
    ),
    Mutant("1.4", "counts_the_end_as_now", "each.num_tokens for each", "each.num_tokens_at_end for each"),
    Mutant("1.4", "reservation_includes_internal", "at_end - token_states", "held - token_states"),
    Mutant("1.4", "internal_includes_reservation", "held - at_end", "held - token_states"),
    Mutant(
        "1.4",
        "gaps_are_free",
        "external_fragmentation=num_slots - held,\n        free=0",
        "external_fragmentation=0,\n        free=num_slots - held",
    ),
    Mutant(
        "1.4",
        "external_from_tokens",
        "external_fragmentation=num_slots - held",
        "external_fragmentation=num_slots - at_end",
    ),
    Mutant(
        "1.5",
        "more_requests_than_there_are",
        "min(num_slots // max_model_len, len(tokens_now))",
        "num_slots // max_model_len",
    ),
    Mutant(
        "1.5", "reserves_what_is_there", "num_slots // max_model_len", "num_slots // max([1, *tokens_now])"
    ),
    Mutant(
        "1.5",
        "a_block_in_part",
        "free_blocks = num_slots // block_size",
        "free_blocks = -(-num_slots // block_size)",
    ),
    Mutant("1.5", "forgets_the_last_block", "-(-tokens // block_size)", "tokens // block_size"),
    Mutant("1.5", "lets_a_shorter_one_overtake", "break", "continue"),
    Mutant("1.5", "counts_slots_as_tokens", "num_tokens += tokens", "num_tokens += needed * block_size"),
    Mutant("1.5", "leaves_the_last_block_free", "needed > free_blocks", "needed >= free_blocks"),
)
