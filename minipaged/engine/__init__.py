"""The engine: takes requests, runs steps, gives outputs.

To read in this order: `llm_engine` (one step, from the queue to the outputs), `intake` (whether a request
can be served), `output_processor` and `beam_processor` (what follows from a step), `detokenizer` and
`stop_strings` (from tokens to text), `outputs` and `stats` (what is reported). `assembly` makes an engine's
pieces from its settings, `memory_plan` decides how many blocks there are.
"""
