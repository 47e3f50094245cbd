"""The runner: one step's tensors, the forward pass, the samples.

To read in this order: `model_runner` (prepare, forward, sample), `step_batch` (what goes into a step),
`prompt_logprobs`. Decode steps can be recorded once and replayed: `decode_steps` says what the runner asks
of such a recording and which one an engine has, `decode_graphs` and `capture` are CUDA's,
`decode_inputs` what a recorded step reads.
"""
