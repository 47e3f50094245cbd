"""Writes the embedded model's card from the results of its training, with unedited samples.

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

A Llama with grouped-query attention that writes short stories for small children. It comes with minipaged. So
lessons, tests and the demo run without a network, on a model whose output is readable.

| | |
|---|---|
| parameters | {parameters:,}, float16 |
| layers, hidden size, MLP | {num_layers}, {hidden_size}, {intermediate_size} |
| heads | {num_heads} query heads on {num_kv_heads} KV heads, head dimension {head_dim} |
| positions | 1024 |
| tokenizer | byte-level BPE, {vocab_size:,} tokens at most; `<|endoftext|>` ends a story |
| training text | {tokens:,} tokens in {stories:,} stories |
| training | {steps:,} steps of {step_tokens:,} tokens, seed {seed}{lengthened}; dropout {dropout:g} |
| | names of people change each time a story is used (`renaming.py`) |
| held-out loss | {held_out_loss:.3f} nats per token, {held_out_bits_per_byte:.3f} bits per byte |
| held out | {held_out_stories:,} stories |
| licence | MIT, like the rest of the package |

SmolLM2-135M-Instruct (Apache-2.0) wrote the training text with minipaged's own engine, from prompts drawn by
`prompts.py`. `clean.py` filtered the text. The beginning of each story and the first words of its end are
drawn from lists in `prompts.py`. There is no text from any other source.

The model has seen only such stories, and its own stories make little sense. Its only purpose is to show how
an engine works. It does not follow instructions. The training stories were filtered with a word list, not
read one by one.

## How it was made

    python -m tools.tiny.corpus shards --shard 1 --stories 20300
    python -m tools.tiny.clean shards corpus
    python -m tools.tiny.train corpus minipaged/model/tiny --steps {steps}
    python -m tools.tiny.card minipaged/model/tiny

All commands run on a CPU. An interrupted command can be run again and continues. `training.json` has all
settings. The same commands do not give exactly the same model, because the corpus was written in three
shards. They were stopped after 12,858, 782 and 6,634 stories. The third shard was added when training had
reached step 5,200, and 5,801 of its stories were used for training.

Writing the corpus was the engine's first long run. These are the figures of the last 100 minutes of shard 1,
on one core with other work on the machine, 128 stories at a time: 757,396 tokens, 126.5 per second, and 128
preemptions. 79 % of the prompt tokens were found in the prefix cache (1,234,008 of 1,559,326). At the end as
many blocks were free as at the beginning.

## What else was tried

Without dropout and new names, the model learnt the stories by heart. Its held-out loss was 1.680 nats after
1,600 steps (1.534 in training) and 1.696 after 4,000 steps (1.135 in training). With both, the held-out loss
was 1.601 after 2,800 steps (1.510 in training) and 1.558 after 5,200 steps. Then 50 % more stories and 2,000
more steps lowered it from 1.568 to {held_out_loss:.3f}; both figures are for the stories that are held out
now.

Then twenty continuations at temperature 0.8 were read. Each ends by itself within 150 tokens. 13 of their 180
sentences are wrong: they contain a word that does not exist, or a word is missing. In nineteen of the twenty,
people keep their names. One continuation says seven times in a row what somebody loved, and then ends. With
`top_p=0.95` and the same temperature, only six sentences of twenty continuations are wrong, and every word
exists. So these settings give the best text. At temperature 0, most answers repeat themselves before their
200th token.

## Samples

The first answer to each prompt. Answers are cut after {most_tokens} tokens.
{samples}"""


def samples(folder: Path) -> str:
    """The model's answer to each prompt at each temperature, as Markdown."""
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
    lengthened = f", lengthened after {', '.join(f'{end:,}' for end in ends)} steps" if ends else ""
    card = _CARD.format(
        **settings, **report, lengthened=lengthened, most_tokens=MOST_TOKENS, samples=samples(folder)
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the model card.")
    parser.add_argument("folder", type=Path, help="folder of the trained model")
    write_card(parser.parse_args().folder)


if __name__ == "__main__":
    main()
