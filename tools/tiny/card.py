"""Writes the embedded model's card from what its training reached, with samples that nobody has edited.

python -m tools.tiny.card FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.sampling.params import SamplingParams

PROMPTS = (
    "Once upon a time, there was a little",
    "One day, Lily found a key in the garden.",
    "Tom was a brave boy. He",
    "It was raining. The dog",
    '"Mom, can we bake a cake?"',
)
TEMPERATURES = (0.0, 0.8)
MOST_TOKENS = 200

_CARD = """# tiny

A Llama with grouped-query attention that writes short stories for small children. It comes with minipaged, so
that lessons, tests and the demo run without a network on a model whose output can be read.

| | |
|---|---|
| parameters | {parameters:,}, float16 |
| layers, hidden size, MLP | {num_layers}, {hidden_size}, {intermediate_size} |
| heads | {num_heads} query heads on {num_kv_heads} KV heads, head dimension {head_dim} |
| positions | 1024 |
| tokenizer | byte-level BPE, {vocab_size:,} tokens at most; `<|endoftext|>` ends a story |
| training text | {tokens:,} tokens in {stories:,} stories |
| training | {steps:,} steps of {step_tokens:,} tokens, seed {seed}{lengthened}; dropout {dropout:g} |
| | the people's names change each time a story is met (`renaming.py`) |
| held-out loss | {held_out_loss:.3f} nats a token, {held_out_bits_per_byte:.3f} bits a byte |
| held out | {held_out_stories:,} stories |
| licence | MIT, like the rest of the package |

SmolLM2-135M-Instruct (Apache-2.0) wrote the text, through minipaged's own engine, from prompts drawn by
`prompts.py`; `clean.py` filtered it. How a story begins, and the first words of its end, are drawn from lists
in `prompts.py`. There is no text from any other source.

It knows nothing but such stories, and they make little sense: it is for looking at an engine, and for nothing
else. It does not follow instructions. Its stories were filtered with a word list, not read one by one.

## How it was made

    python -m tools.tiny.corpus shards --shard 1 --stories 20300
    python -m tools.tiny.clean shards corpus
    python -m tools.tiny.train corpus minipaged/model/tiny --steps {steps}
    python -m tools.tiny.card minipaged/model/tiny

All of them run on a CPU and go on where they were interrupted. `training.json` has all settings. (The corpus
was written in three shards, stopped after 12,858, 782 and 6,634 stories. The third, of which 5,801 were used
for training, came to the others when that had reached step 5,200. So the same commands do not give quite the
same model.)

Writing it was the engine's first long run. The last 100 minutes of shard 1, on one core beside other work,
128 stories at a time: 757,396 tokens, 126.5 a second, 128 preemptions, 79 % of the prompts' tokens found in
the prefix cache (1,234,008 of 1,559,326), and as many free blocks at the end as at the beginning.

## What else was tried

Without dropout and new names, the stories were learnt by heart: 1.680 nats held out after 1,600 steps
(1.534 in training), and 1.696 after 4,000 (1.135 in training). With both, 2,800 steps reached 1.601 (1.510 in
training), and 5,200 steps 1.558. Half as many stories again, and 2,000 steps more, brought the held-out loss
from 1.568 to {held_out_loss:.3f}, both on the stories that are held out now.

Twenty continuations at temperature 0.8 were then read. All end by themselves, within 150 tokens. Of their
180 sentences 13 are wrong: a word that is none, or one too few. A person keeps the name in nineteen of the
twenty. One says seven times in a row what somebody loved, and ends then. With `top_p=0.95` beside the
temperature, six sentences of twenty continuations are wrong, and all words are words: so it reads best. At
temperature 0, most answers repeat themselves before their 200th token.

## Samples

The first answer to each prompt, cut at {most_tokens} tokens if it has not ended.
{samples}"""


def samples(folder: Path) -> str:
    """What the model makes of each prompt at each temperature, as Markdown."""
    engine = LLMEngine(EngineConfig(model=str(folder), device="cpu", dtype="float32", num_blocks=200))
    text = ""
    for temperature in TEMPERATURES:
        params = SamplingParams(temperature=temperature, seed=0, max_tokens=MOST_TOKENS)
        for number, prompt in enumerate(PROMPTS):
            engine.add_request(str(number), prompt, params)
        written: dict[int, str] = {}
        while engine.has_unfinished_requests():
            for output in engine.step():
                written[int(output.request_id)] = output.outputs[0].text
        text += f"\n### Temperature {temperature:g}\n"
        for number, prompt in enumerate(PROMPTS):
            quoted = written[number].replace("\n", "\n> ")
            text += f"\n> **{prompt}**{quoted}\n"
    return text


def write_card(folder: Path) -> None:
    """Write README.md into a trained model's folder."""
    report = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    settings, ends = report.pop("settings"), report.pop("lengthened_at")
    lengthened = f", in runs that ended after {', '.join(f'{end:,}' for end in ends)} and all" if ends else ""
    card = _CARD.format(
        **settings, **report, lengthened=lengthened, most_tokens=MOST_TOKENS, samples=samples(folder)
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the model card.")
    parser.add_argument("folder", type=Path, help="of the trained model")
    write_card(parser.parse_args().folder)


if __name__ == "__main__":
    main()
