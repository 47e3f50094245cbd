"""The runner: it makes the tensors of a step, runs the forward pass, and samples.

Read the modules in this order: `model_runner` (prepare, forward, sample), `step_batch` (the input of a step),
`prompt_logprobs` (log-probabilities of prompt tokens). Decode steps can be recorded once and replayed:
`decode_steps` (the interface of a recording, and which one an engine uses), `decode_graphs` and `capture`
(recording with CUDA graphs), `decode_inputs` (the tensors that a recorded step reads). `warm_up` launches
every kernel once, so that none is compiled while a request waits.
"""
