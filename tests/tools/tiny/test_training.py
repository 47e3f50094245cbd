"""The training of the embedded model, with a tiny corpus and a tiny network."""

from __future__ import annotations

import io
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from minipaged.errors import ConfigError
from minipaged.loading.folder import read_tokenizer
from minipaged.loading.loader import load_model
from tools.tiny.card import PROMPTS, write_card
from tools.tiny.clean import write_texts
from tools.tiny.prompts import BOYS, GIRLS, PETS
from tools.tiny.renaming import renamed
from tools.tiny.rows import IGNORED, DrawDocument, evaluation_rows, training_rows
from tools.tiny.tokenizer import END, save_tokenizer, train_tokenizer
from tools.tiny.train import tokenise, train
from tools.tiny.training import Settings, Training, held_out_loss

TEXTS = [f"{name} had a {thing}. {name} was happy." for name in ("Tom", "Mia") for thing in ("cat", "kite")]
MICRO = Settings(
    steps=12,
    step_tokens=128,
    context=32,
    long_share=0.0,
    warmup=2,
    peak_lr=1e-2,
    vocab_size=280,
    hidden_size=32,
    intermediate_size=48,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, 280)


@pytest.fixture(scope="module")
def documents(tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    return tokenise(tokenizer, TEXTS)


@given(st.text())
def test_the_tokenizer_spells_any_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    token_ids = tokenizer.encode(text)
    assert tokenizer.decode(token_ids, skip_special_tokens=False) == text


def test_the_saved_tokenizer_is_the_same(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path)
    ours, theirs = read_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert ours is not None
    assert ours.eos_token_id == theirs.eos_token_id == theirs.bos_token_id == 0
    assert ours.vocab_size == len(theirs) == len(tokenizer) <= 280
    text = "Tom was a cat, too. Ünï 🙂"
    assert ours.encode(text) == theirs.encode(text) == tokenizer.encode(text)
    assert ours.encode(END) == [0]
    assert len(ours.encode(TEXTS[0])) < len(TEXTS[0]) / 2
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_documents_end_with_the_end_token(
    documents: list[list[int]], tokenizer: PreTrainedTokenizerFast
) -> None:
    assert [document[-1] for document in documents] == [0] * len(TEXTS)
    assert [tokenizer.decode(document[:-1]) for document in documents] == TEXTS


def draw_from(documents: list[list[int]]) -> DrawDocument:
    return lambda rng: documents[rng.randrange(len(documents))]


def test_training_rows_start_with_a_document_and_repeat_for_the_same_seed() -> None:
    documents = [[1, 2, 3, 0], [4, 5, 0]]
    rows = training_rows(draw_from(documents), 50, 9, "a")
    assert rows.shape == (50, 9)
    assert set(rows[:, 0].tolist()) == {1, 4}
    for row in rows.tolist():
        while row:
            document = documents[0] if row[0] == 1 else documents[1]
            assert row[: len(document)] == document[: len(row)]
            row = row[len(document) :]
    assert torch.equal(rows, training_rows(draw_from(documents), 50, 9, "a"))
    assert not torch.equal(rows, training_rows(draw_from(documents), 50, 9, "b"))


def test_evaluation_counts_each_token_once(documents: list[list[int]]) -> None:
    run = Training(MICRO, draw_from(documents), 280)
    total, count = 0.0, 0
    run.model.eval()
    for document in documents:
        ids = torch.tensor(document)
        logits = run.model(ids[None, :-1]).logits[0]
        total += F.cross_entropy(logits, ids[1:], reduction="sum").item()
        count += len(document) - 1
    assert held_out_loss(run.model, documents) == pytest.approx(total / count, rel=1e-5)
    labels = torch.cat([labels.flatten() for _, labels in evaluation_rows(documents, 3)])
    assert int((labels != IGNORED).sum()) == count


def test_the_learning_rate_rises_stays_and_falls() -> None:
    settings = Settings(steps=100, warmup=10, decay_share=0.3, peak_lr=1.0)
    rates = [settings.learning_rate(step) for step in range(100)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert rates[9:71] == [1.0] * 62
    assert rates[85] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 30)


def test_the_last_steps_have_all_positions() -> None:
    settings = Settings(steps=100, context=64, long_share=0.1)
    assert [settings.context_of(step) for step in (0, 89, 90, 99)] == [64, 64, 1024, 1024]


def test_training_lowers_the_loss_and_resumes_to_the_same_weights(
    documents: list[list[int]], tmp_path: Path
) -> None:
    whole = Training(MICRO, draw_from(documents), 280)
    before = held_out_loss(whole.model, documents)
    losses = [whole.advance() for _ in range(12)]
    assert held_out_loss(whole.model, documents) < before - 0.5

    first = Training(MICRO, draw_from(documents), 280)
    assert [first.advance() for _ in range(5)] == losses[:5]
    first.save(tmp_path / "c.pt")
    second = Training(MICRO, draw_from(documents), 280)
    second.resume(tmp_path / "c.pt")
    assert second.step == 5
    assert [second.advance() for _ in range(7)] == losses[5:]
    for (name, one), other in zip(
        whole.model.state_dict().items(), second.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


@pytest.mark.parametrize(("done", "expected"), [(9, [9]), (7, [])])
def test_a_longer_run_remembers_what_it_was(
    documents: list[list[int]], tmp_path: Path, done: int, expected: list[int]
) -> None:
    """A run records the step where it was lengthened, if earlier steps had other learning rates."""
    run = Training(replace(MICRO, steps=10), draw_from(documents), 280)
    for _ in range(done):
        run.advance()
    for _ in range(2):
        run.save(tmp_path / "c.pt")
        run = Training(replace(MICRO, steps=20), draw_from(documents), 280)
        run.resume(tmp_path / "c.pt")
        assert run.lengthened_at == expected


def test_dropout_is_of_the_training_alone(documents: list[list[int]]) -> None:
    run = Training(replace(MICRO, dropout=0.5), draw_from(documents), 280)
    ids = torch.tensor(documents[:1])
    first, second = (run.model(ids).logits for _ in range(2))
    assert not torch.equal(first, second)
    assert held_out_loss(run.model, documents) == held_out_loss(run.model, documents)


def test_names_change_and_stay_the_same_within_a_story() -> None:
    text = "Lily's dog Waffles barked. Tom saw Lily. Will you come, Tom? said Mr Grey. Lilypad."
    found = {renamed(text, random.Random(seed)) for seed in range(30)}
    assert len(found) > 20
    for other in found:
        match = re.fullmatch(
            r"(\w+)'s dog (\w+) barked. (\w+) saw \1. Will you come, \3\? said Mr Grey. Lilypad.", other
        )
        assert match is not None, other
        assert match[1] in GIRLS
        assert match[2] in PETS
        assert match[3] in BOYS


@given(st.lists(st.sampled_from((*GIRLS, *BOYS, *PETS)), max_size=12), st.integers())
def test_different_people_stay_different(names: list[str], seed: int) -> None:
    other = renamed(" ".join(names), random.Random(seed)).split()
    assert len(other) == len(names)
    assert len(set(zip(names, other, strict=True))) == len(set(names)) == len(set(other))


def test_a_checkpoint_of_other_settings_is_refused(documents: list[list[int]], tmp_path: Path) -> None:
    Training(MICRO, draw_from(documents), 280).save(tmp_path / "c.pt")
    Training(replace(MICRO, steps=99), draw_from(documents), 280).resume(tmp_path / "c.pt")
    with pytest.raises(ConfigError, match="other settings"):
        Training(replace(MICRO, peak_lr=1.0), draw_from(documents), 280).resume(tmp_path / "c.pt")


def test_nothing_held_out_is_refused(tmp_path: Path) -> None:
    write_texts(tmp_path / "train.jsonl", TEXTS)
    write_texts(tmp_path / "heldout.jsonl", [])
    with pytest.raises(ConfigError, match="no stories"):
        train(tmp_path, tmp_path / "m", MICRO, Console(file=io.StringIO()))


def test_a_corpus_that_has_grown_keeps_the_tokenizer_of_the_model(tmp_path: Path) -> None:
    """Token ids keep their meaning when training continues."""
    write_texts(tmp_path / "train.jsonl", TEXTS)
    write_texts(tmp_path / "heldout.jsonl", TEXTS[:1])
    train(tmp_path, tmp_path / "first", MICRO, Console(file=io.StringIO()))
    more = [f"{text} zzyzx zzyzx zzyzx" for text in TEXTS]
    write_texts(tmp_path / "train.jsonl", TEXTS + more)
    assert train_tokenizer(TEXTS + more, 280).get_vocab() != train_tokenizer(TEXTS, 280).get_vocab()
    longer = replace(MICRO, steps=MICRO.steps + 2)
    train(tmp_path, tmp_path / "second", longer, Console(file=io.StringIO()))
    first, second = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("first", "second"))
    assert second.get_vocab() == first.get_vocab()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "second" / name).read_text() == (tmp_path / "first" / name).read_text()
    report = json.loads((tmp_path / "second" / "training.json").read_text())
    assert report["stories"] == 2 * len(TEXTS)
    assert report["lengthened_at"] == [MICRO.steps]


def test_the_written_folder_is_a_model_with_its_card(tmp_path: Path) -> None:
    write_texts(tmp_path / "train.jsonl", TEXTS)
    write_texts(tmp_path / "heldout.jsonl", TEXTS[:1])
    said = io.StringIO()
    train(tmp_path, tmp_path / "m", MICRO, Console(file=said, width=200))
    report = json.loads((tmp_path / "m" / "training.json").read_text())
    assert f"held-out loss {report['held_out_loss']:.4f}" in said.getvalue()
    assert report["settings"]["seed"] == MICRO.seed
    assert report["tokens"] == sum(map(len, tokenise(train_tokenizer(TEXTS, 280), TEXTS)))
    model = load_model(str(tmp_path / "m"), dtype=torch.float32, device=torch.device("cpu"))
    assert model.config.eos_token_ids == (0,)
    assert (model.config.num_heads, model.config.num_kv_heads) == (2, 1)
    assert (tmp_path / "m" / "model.safetensors").stat().st_mode & 0o777 == 0o644

    write_card(tmp_path / "m")
    card = (tmp_path / "m" / "README.md").read_text()
    assert "{" not in card
    assert f"{report['held_out_loss']:.3f}" in card
    assert all(card.count(f"**{prompt}**") == 2 for prompt in PROMPTS)
