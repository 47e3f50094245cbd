"""From a model's name to a decoder with its weights and a tokenizer.

To read in this order: `locations` (what a name means), `loader` (the whole way), then one of the two kinds
of files: a folder in Hugging Face's form (`folder`, `hf_config`, `safetensors_source`) or GGUF (`gguf_file`,
`gguf_config`, `gguf_source`, `gguf_tokenizer`). `tensor_source` fills a decoder from either. `hub` and
`smollm2_wheel` fetch. `known_models` and `shape_lookup` answer for a shape without loading anything.
"""
