"""Loads a model: makes a decoder with weights, and a tokenizer, from the model's name.

Read in this order: `locations` (what a name means), `loader` (the whole process), then one of the two file
formats: a folder in Hugging Face's form (`folder`, `hf_config`, `safetensors_source`) or GGUF (`gguf_file`,
`gguf_config`, `gguf_source`, `gguf_tokenizer`). `tensor_source` fills a decoder from both formats. `hub` and
`smollm2_wheel` fetch models. `known_models` and `shape_lookup` give a model's shape without loading it.
"""
