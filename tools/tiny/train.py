"""Trains the embedded model.

    python -m tools.tiny.train CORPUS FOLDER

CORPUS contains `train.jsonl` and `heldout.jsonl` from `clean.py`. Checkpoints and the tokenizer are written
there too. An interrupted training continues from the last checkpoint, even if the corpus has grown. FOLDER
receives the model in Hugging Face's form, and `training.json` with the settings and the final losses.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from minipaged.errors import ConfigError
from tools.tiny.clean import read_texts
from tools.tiny.renaming import renamed
from tools.tiny.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from tools.tiny.training import Settings, Training, held_out_loss

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHECKPOINT_EVERY = 200
"""Steps between two checkpoints. The held-out loss is measured at each checkpoint."""


def tokenise(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    """Token ids of each text, with the end token."""
    end = tokenizer.eos_token_id
    assert isinstance(end, int)
    return [[*encoding.ids, end] for encoding in tokenizer.backend_tokenizer.encode_batch(texts)]


def _tokenizer_of(folder: Path, texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """The tokenizer with which training began, or a new one. A model works only with its own tokenizer."""
    if not folder.exists():
        save_tokenizer(train_tokenizer(texts, vocab_size), folder)
    return load_tokenizer(folder)


def train(corpus: Path, folder: Path, settings: Settings, console: Console) -> None:
    """Train, or continue an interrupted training, and write the model.

    Raises:
        ConfigError: there are no held-out stories, or the checkpoint is from a run with other settings.
    """
    texts, held_out_texts = read_texts(corpus / "train.jsonl"), read_texts(corpus / "heldout.jsonl")
    tokenizer = _tokenizer_of(corpus / "tokenizer", texts, settings.vocab_size)
    documents, held_out = tokenise(tokenizer, texts), tokenise(tokenizer, held_out_texts)
    if not held_out:
        raise ConfigError(f"{corpus / 'heldout.jsonl'} holds no stories: write a longer corpus")
    num_tokens = sum(map(len, documents))

    def draw(rng: random.Random) -> list[int]:
        return tokenise(tokenizer, [renamed(texts[rng.randrange(len(texts))], rng)])[0]

    run = Training(settings, draw, len(tokenizer))
    console.print(
        f"{run.model.num_parameters():,} parameters; {len(documents):,} stories, {num_tokens:,} tokens, "
        f"each seen {settings.steps * settings.step_tokens / num_tokens:.1f} times; "
        f"{len(held_out):,} stories held out"
    )
    checkpoint = corpus / "checkpoint.pt"
    if checkpoint.exists():
        run.resume(checkpoint)
        console.print(f"continues after step {run.step:,} from {checkpoint}")
    training_loss = _run(run, held_out, checkpoint, console)

    # Round to float16 first, so that the reported loss is that of the model that is shipped.
    run.model.half().float()
    loss = held_out_loss(run.model, held_out)
    num_bytes = sum(len(text.encode()) for text in held_out_texts)
    num_labels = sum(len(document) - 1 for document in held_out)
    run.model.half().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, folder)
    report = {
        "settings": asdict(settings),
        "lengthened_at": run.lengthened_at,
        "stories": len(documents),
        "tokens": num_tokens,
        "parameters": run.model.num_parameters(),
        "training_loss": round(training_loss, 4),
        "held_out_loss": round(loss, 4),
        "held_out_bits_per_byte": round(loss * num_labels / num_bytes / math.log(2), 4),
        "held_out_stories": len(held_out),
    }
    (folder / "training.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(f"held-out loss {loss:.4f} nats per token; written to {folder}")


def _run(run: Training, held_out: list[list[int]], checkpoint: Path, console: Console) -> float:
    """Run the remaining steps. Returns a running mean of the training loss."""
    columns = (
        TextColumn("loss {task.fields[loss]:.3f}, held out {task.fields[held_out]:.3f}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f} tokens/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    mean = nan = math.nan
    began, first = time.monotonic(), run.step
    with Progress(*columns, console=console, speed_estimate_period=300) as progress:
        task = progress.add_task(
            "", total=run.settings.steps, completed=run.step, loss=nan, held_out=nan, rate=0.0
        )
        while run.step < run.settings.steps:
            loss = run.advance()
            mean = loss if math.isnan(mean) else 0.98 * mean + 0.02 * loss
            rate = (run.step - first) * run.settings.step_tokens / (time.monotonic() - began)
            progress.update(task, advance=1, loss=mean, rate=rate)
            if run.step % CHECKPOINT_EVERY == 0:
                run.save(checkpoint)
                now = held_out_loss(run.model, held_out)
                progress.update(task, held_out=now)
                console.print(f"step {run.step:,}: loss {mean:.4f}, held out {now:.4f}, {rate:,.0f} tokens/s")
        run.save(checkpoint)
    return mean


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the embedded model.")
    parser.add_argument("corpus", type=Path, help="folder with train.jsonl and heldout.jsonl")
    parser.add_argument("folder", type=Path, help="folder for the model")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    train(arguments.corpus, arguments.folder, Settings(steps=arguments.steps), Console())


if __name__ == "__main__":
    main()
