"""The allowed names, for each setting and each result whose value is a name."""

from __future__ import annotations

from typing import Literal

DType = Literal["auto", "float32", "bfloat16", "float16"]
LoadFormat = Literal["auto", "dummy"]
SchedulingPolicy = Literal["fcfs", "priority", "shortest"]
PreemptionMode = Literal["recompute", "swap", "never"]
KVLayoutName = Literal["paged", "contiguous", "none"]
ReserveRule = Literal["max", "pow2", "oracle"]
RegionAllocatorName = Literal["first_fit", "buddy"]
Batching = Literal["continuous", "static"]
ForkMode = Literal["share", "copy"]
AttentionBackend = Literal["auto", "reference", "cpu", "triton"]
HashAlgorithm = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
GenerationConfigSource = Literal["auto", "vllm"]

FinishReason = Literal["stop", "length", "abort"]
