"""Writes the training stories of the embedded model, with SmolLM2-135M-Instruct and our engine.

    python -m tools.tiny.corpus FOLDER --shard 0 --stories 10000

Each story takes two requests. The first continues a given opening for 50 to 130 tokens. It is aborted as
soon as it repeats itself. The prompt of the second request consists of the first request's complete
sentences and the first words of an ending. So the prefix cache has most of this prompt already. The second
request ends at the end of its paragraph.

The shard and the story's number alone determine a story; other stories in the batch do not matter. A shard
is one file of JSON lines, and each finished story is appended to it. An interrupted run can be started again
and continues. Several processes may write different shards at once.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.engine.outputs import RequestOutput
from minipaged.sampling.params import SamplingParams
from tools.tiny.prompts import SYSTEM, StoryPlan, draw_plan
from tools.tiny.repeats import before_repeat, has_repeat, words
from tools.tiny.shards import Story, open_shard, read_shard, shard_path

REPEATED_WORDS = 6
"""A text is in a loop if it repeats this many words in a row."""

ENDING_TOKENS = 48


@dataclass
class _Draft:
    """A story that is being written."""

    number: int
    plan: StoryPlan
    chat: list[int]
    body_tokens: int
    temperature: float
    seed: int
    text: str
    num_tokens: int = 0

    def params(self, max_tokens: int, stop: tuple[str, ...] = ()) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature,
            min_p=0.08,
            repetition_penalty=1.05,
            seed=self.seed,
            max_tokens=max_tokens,
            stop=stop,
        )


class StoryWriter:
    """Writes stories with an engine, as many at a time as its batch holds.

    Args:
        engine: an engine whose model has a tokenizer. Nothing else may use it at the same time.
        shard: number of the shard, which seeds all its stories.
    """

    def __init__(self, engine: LLMEngine, shard: int) -> None:
        assert engine.model.tokenizer is not None
        self._engine = engine
        self._tokenizer = engine.model.tokenizer
        self._shard = shard
        self._drafts: dict[str, _Draft] = {}

    def write(self, numbers: Iterator[int]) -> Iterator[Story]:
        """Write the stories with these numbers. They are yielded as they end, in any order."""
        while True:
            while len(self._drafts) < self._engine.config.max_num_seqs:
                if (number := next(numbers, None)) is None:
                    break
                self._begin(number)
            if not self._drafts:
                return
            for output in self._engine.step():
                if (story := self._advance(output)) is not None:
                    yield story

    def _begin(self, number: int) -> None:
        rng = random.Random(f"{self._shard}/{number}")
        plan = draw_plan(rng)
        chat = self._chat(plan)
        draft = _Draft(
            number=number,
            plan=plan,
            chat=chat,
            body_tokens=rng.randint(50, 130),
            temperature=rng.choice((0.6, 0.7, 0.8)),
            seed=rng.getrandbits(32),
            text=plan.opening,
        )
        self._add("body", draft, draft.params(draft.body_tokens))

    def _chat(self, plan: StoryPlan) -> list[int]:
        if self._tokenizer.chat_template is None:
            return []
        return self._tokenizer.apply_chat_template(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": plan.request}]
        )

    def _add(self, stage: str, draft: _Draft, params: SamplingParams) -> None:
        request_id = f"{stage}-{draft.number}"
        prompt = draft.chat + self._tokenizer.encode(draft.text, add_special_tokens=False)
        self._engine.add_request(request_id, prompt, params)
        self._drafts[request_id] = draft

    def _advance(self, output: RequestOutput) -> Story | None:
        """Process a step's output for one request. Return the story if it is complete."""
        draft = self._drafts[output.request_id]
        sample = output.outputs[0]
        whole = draft.text + sample.text
        is_body = output.request_id.startswith("body")
        if not output.finished:
            if len(sample.token_ids) % 8 or not has_repeat(words(whole), REPEATED_WORDS):
                return None
            self._engine.abort_request(output.request_id)
        del self._drafts[output.request_id]
        draft.num_tokens += len(sample.token_ids)
        if sample.finish_reason == "stop":
            return self._story(draft, whole, "stop")
        if not is_body:
            return self._story(draft, whole, "length")
        kept = before_repeat(whole, REPEATED_WORDS)
        if len(words(kept)) < len(words(draft.plan.opening)) + 15:
            return self._story(draft, kept, "length")
        draft.text = f"{kept} {draft.plan.closing}"
        self._add("end", draft, draft.params(ENDING_TOKENS, stop=("\n",)))
        return None

    def _story(self, draft: _Draft, text: str, reason: str) -> Story:
        return Story(
            draft.number, draft.plan.opening, text.strip(), reason, draft.temperature, draft.num_tokens
        )


def write_shard(engine: LLMEngine, path: Path, shard: int, num_stories: int, progress: Progress) -> int:
    """Write the stories that are missing from a shard.

    Returns:
        The number of stories that were written.

    Raises:
        ConfigError: another process is writing this shard.
    """
    file = open_shard(path)
    done = {story.number for story in read_shard(path)}
    missing = (number for number in range(num_stories) if number not in done)
    already = sum(number < num_stories for number in done)
    task = progress.add_task(path.name, total=num_stories, completed=already, tokens="", rate="")
    began, before, written = time.monotonic(), engine.stats().generation_tokens, 0
    try:
        with file:
            for story in StoryWriter(engine, shard).write(missing):
                file.write(json.dumps(asdict(story)) + "\n")
                file.flush()
                written += 1
                tokens = engine.stats().generation_tokens - before
                progress.update(
                    task,
                    advance=1,
                    tokens=f"{tokens:,} tokens",
                    rate=f"{tokens / (time.monotonic() - began):,.0f} tokens/s",
                )
    finally:
        engine.abort_all()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write stories with SmolLM2-135M-Instruct.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shard", type=int, default=0, help="shard, also the seed (default: %(default)s)")
    parser.add_argument("--stories", type=int, default=10_000, help="its stories (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="stories at a time (default: %(default)s)")
    arguments = parser.parse_args()
    console = Console()
    # A request has about 300 tokens at most. The rest of the pool caches the bodies of stories, which their
    # second requests need again.
    engine = LLMEngine(
        EngineConfig(
            model="smollm2-135m",
            dtype="float32",
            max_model_len=384,
            max_num_seqs=arguments.batch,
            block_size=4,  # small, so that more tokens of shared prompts are found in the cache
            num_blocks=96 * arguments.batch,
        ),
        progress=True,
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]}"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    free_before, began = engine.stats().num_free_blocks, time.monotonic()
    path = shard_path(arguments.folder, arguments.shard)
    try:
        with Progress(*columns, console=console) as progress:
            written = write_shard(engine, path, arguments.shard, arguments.stories, progress)
        console.print(f"{written:,} stories")
    except KeyboardInterrupt:
        console.print("Interrupted. Run the same command again to continue.")
    seconds, stats = time.monotonic() - began, engine.stats()
    engine.check_invariants()
    console.print(
        f"{stats.generation_tokens:,} tokens in {seconds:,.0f} s, "
        f"{stats.generation_tokens / seconds:,.1f} tokens/s; "
        f"prefix hits {stats.prefix_cache_hits:,} of {stats.prefix_cache_queries:,}; "
        f"preemptions {stats.num_preemptions}; free {free_before:,} before, {stats.num_free_blocks:,} after"
    )


if __name__ == "__main__":
    main()
