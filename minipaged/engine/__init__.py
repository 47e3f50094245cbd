"""The engine: takes requests, runs steps, returns outputs.

Read the modules in this order: `llm_engine` (one step, from the queue to the outputs), `intake` (whether a
request can be served), `output_processor` and `beam_processor` (how a step's results change a request),
`detokenizer` and `stop_strings` (from tokens to text), `outputs` and `stats` (what the engine reports).
`assembly` makes the parts of an engine from its settings. `memory_plan` decides how many blocks there are.
"""
