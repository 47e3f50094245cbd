"""The scheduler: which requests run in the next step, with how many tokens, on which blocks.

Read the modules in this order: `scheduler` (the plan of a step, admission, preemption), `queues` (where each
request is), `policy` (the order of requests), `scheduler_output` (the plan as a value). Then `resume` (how
the samples of a preempted request come back), `static_batch` (static batching, for chapters 2 to 5) and
`rollback` (undoing a step that failed).
"""
