"""Runs llama.cpp, through the low-level interface of llama-cpp-python.

A workload of one request runs as a single stream. The first run of a workload of several requests tries two
ways: one request after the other, and all requests as one batch. The faster way counts, and later runs of the
workload use only that way.
"""

from __future__ import annotations

import time
from itertools import takewhile
from typing import NamedTuple

from serve_runs import Job, Served, serve

BATCH = 2048
WAYS = ("single stream", "batch")
TENSOR_F32, TENSOR_F16 = 0, 1  # ggml_type


class LlamaCpp:
    """A context with one KV cache for all sequences."""

    packages: tuple[str, ...] = ("llama-cpp-python", "numpy")

    def __init__(self, job: Job) -> None:
        import llama_cpp  # pyright: ignore[reportMissingImports]

        self._lib = llama_cpp
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            job.model.encode(), llama_cpp.llama_model_default_params()
        )
        if self._model is None:
            raise RuntimeError(f"llama.cpp cannot load {job.model}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = job.kv_cache_bytes // job.kv_bytes_per_token
        params.n_batch = BATCH
        params.n_seq_max = job.max_num_seqs
        params.n_threads = params.n_threads_batch = job.threads
        params.kv_unified = True
        # The cache is in float16, the default, if weights have 16 bits. Otherwise it is in float32, like the
        # weights.
        params.type_k = params.type_v = TENSOR_F32 if job.dtype == "float32" else TENSOR_F16
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if self._context is None:
            raise RuntimeError("llama.cpp cannot make a context")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self._better: dict[tuple[int, int], str] = {}
        self.settings: dict[str, str | int | float | None] = {
            "system": llama_cpp.llama_print_system_info().decode(errors="replace").strip(),
            "n_ctx": int(llama_cpp.llama_n_ctx(self._context)),
            "kv type": "f32" if job.dtype == "float32" else "f16",
            "threads": job.threads,
        }

    def run(self, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        """See `serve_runs.Engine`."""
        if len(prompts) == 1:
            return self._time("single stream", prompts, max_tokens)
        key = (sum(map(len, prompts)), sum(max_tokens))
        if key in self._better:
            return self._time(self._better[key], prompts, max_tokens)
        tried = [self._time(way, prompts, max_tokens) for way in WAYS]
        best = min(tried, key=lambda served: served.seconds)
        self._better[key] = str(best.details["way"])
        seconds = {f"seconds, {served.details['way']}": served.seconds for served in tried}
        return Served(best.outputs, best.seconds, details=best.details | seconds)

    def _time(self, way: str, prompts: list[list[int]], max_tokens: list[int]) -> Served:
        self._lib.llama_memory_clear(self._memory, True)
        serve_all = self._as_batch if way == "batch" else self._one_by_one
        began = time.perf_counter()
        outputs = serve_all(prompts, max_tokens)
        return Served(outputs, time.perf_counter() - began, details={"way": way})

    def _one_by_one(self, prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        """Each request reuses the cached tokens that it has in common with the previous request."""
        outputs: list[list[int]] = []
        kept: list[int] = []
        for prompt, count in zip(prompts, max_tokens, strict=True):
            num_shared = min(_num_common(kept, prompt), len(prompt) - 1)
            self._lib.llama_memory_seq_rm(self._memory, 0, num_shared, -1)
            output = [self._decode(_rows(prompt, 0, num_shared))[0]]
            while len(output) < count:
                position = len(prompt) + len(output) - 1
                output.append(self._decode([Row(output[-1], position, 0, True)])[0])
            outputs.append(output)
            kept = prompt + output[:-1]
        return outputs

    def _as_batch(self, prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        """Serve all requests at once. The common prefix of all prompts is computed once and shared."""
        num_shared = min(_num_common(*prompts), min(map(len, prompts)) - 1)
        if num_shared:
            self._decode([Row(token, i, 0, False) for i, token in enumerate(prompts[0][:num_shared])])
            for seq in range(1, len(prompts)):
                self._lib.llama_memory_seq_cp(self._memory, 0, seq, 0, num_shared)
        rows = [row for seq, prompt in enumerate(prompts) for row in _rows(prompt, seq, num_shared)]
        chosen = self._decode(rows)
        outputs = [[chosen[seq]] for seq in range(len(prompts))]
        running = set(range(len(prompts)))
        while True:
            for seq in [seq for seq in running if len(outputs[seq]) == max_tokens[seq]]:
                self._lib.llama_memory_seq_rm(self._memory, seq, -1, -1)
                running.remove(seq)
            if not running:
                return outputs
            rows = [
                Row(outputs[seq][-1], len(prompts[seq]) + len(outputs[seq]) - 1, seq, True)
                for seq in sorted(running)
            ]
            for seq, token in self._decode(rows).items():
                outputs[seq].append(token)

    def _decode(self, rows: list[Row]) -> dict[int, int]:
        """Compute the rows. Return the likeliest next token of each sequence whose row wants logits."""
        import numpy as np

        chosen: dict[int, int] = {}
        batch = self._batch
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            batch.n_tokens = len(part)
            for i, row in enumerate(part):
                batch.token[i] = row.token
                batch.pos[i] = row.position
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = row.seq
                batch.logits[i] = row.wants_logits
            if code := self._lib.llama_decode(self._context, batch):
                raise RuntimeError(f"llama_decode gives {code} for {len(part)} tokens")
            for i, row in enumerate(part):
                if row.wants_logits:
                    pointer = self._lib.llama_get_logits_ith(self._context, i)
                    logits = np.ctypeslib.as_array(pointer, shape=(self._vocab_size,))
                    chosen[row.seq] = int(logits.argmax())
        return chosen


class Row(NamedTuple):
    """One token to compute: its position, its sequence, and whether its logits are wanted."""

    token: int
    position: int
    seq: int
    wants_logits: bool


def _num_common(*sequences: list[int]) -> int:
    """The length of the longest common prefix, in tokens."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*sequences, strict=False)))


def _rows(prompt: list[int], seq: int, start: int) -> list[Row]:
    """The rows of a prompt from token `start` on. The last token's logits are wanted."""
    return [Row(prompt[i], i, seq, i == len(prompt) - 1) for i in range(start, len(prompt))]


if __name__ == "__main__":
    serve(LlamaCpp)
