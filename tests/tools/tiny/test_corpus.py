"""The corpus of the embedded model: drawing prompts, writing stories, and filtering them."""

from __future__ import annotations

import fcntl
import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.errors import ConfigError
from tests.oracle import add_byte_tokenizer, make_model
from tools.tiny.clean import clean, fault, is_held_out, normalise, read_texts, write_texts
from tools.tiny.corpus import StoryWriter, write_shard
from tools.tiny.prompts import draw_plan
from tools.tiny.repeats import before_repeat, has_repeat, sentences, words
from tools.tiny.shards import Story, read_shard, shard_path

GOOD = (
    "Once there was a little dog named Pip. He lived on a farm. One day, Pip found a red ball in the grass. "
    'He took it to the girl next door. "Is this your ball?" he asked.\n\n"Yes, thank you!" said the girl. '
    "Now they play together each morning, and nobody is lonely."
)


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nano") / "m"
    return add_byte_tokenizer(make_model(folder, num_layers=1, max_position_embeddings=1024))


def make_engine(folder: Path, max_num_seqs: int) -> LLMEngine:
    return LLMEngine(
        EngineConfig(
            model=str(folder), device="cpu", max_num_seqs=max_num_seqs, num_blocks=10 + 60 * max_num_seqs
        )
    )


def quiet() -> Progress:
    return Progress("{task.description}", console=Console(file=io.StringIO()))


def test_plans_are_filled_in_and_differ() -> None:
    plans = [draw_plan(random.Random(seed)) for seed in range(300)]
    for plan in plans:
        joined = plan.request + plan.opening + plan.closing
        assert joined.isascii()
        assert "{" not in joined
        assert "a elephant" not in joined
        assert plan.opening == plan.opening.strip()
        assert plan.opening[0].isupper()
        assert plan.closing[0].isupper()
    assert len({plan.opening for plan in plans}) > 290
    assert draw_plan(random.Random(5)) == plans[5]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("max_num_seqs", [1, 7])
def test_stories_do_not_depend_on_the_batch(nano: Path, max_num_seqs: int) -> None:
    stories = {story.number: story for story in StoryWriter(make_engine(nano, 4), 3).write(iter(range(9)))}
    engine = make_engine(nano, max_num_seqs)
    others = {story.number: story for story in StoryWriter(engine, 3).write(iter(range(8, -1, -1)))}
    assert others == stories
    assert set(stories) == set(range(9))
    other_shard = next(iter(StoryWriter(make_engine(nano, 4), 4).write(iter([0]))))
    assert other_shard.text != stories[0].text


def test_an_interrupted_shard_goes_on_and_nothing_leaks(nano: Path, tmp_path: Path) -> None:
    whole, torn = shard_path(tmp_path, 1), shard_path(tmp_path, 2)
    engine = make_engine(nano, 4)
    free = engine.stats().num_free_blocks
    with quiet() as progress:
        assert write_shard(engine, whole, 1, 8, progress) == 8
    engine.check_invariants()
    assert engine.stats().num_free_blocks == free
    assert not engine.has_unfinished_requests()

    lines = whole.read_bytes().splitlines(keepends=True)
    torn.write_bytes(b"".join(lines[:3]) + lines[3][: len(lines[3]) // 2])
    assert len(read_shard(torn)) == 3
    with quiet() as progress:
        assert write_shard(make_engine(nano, 2), torn, 1, 8, progress) == 5
    assert sorted(torn.read_bytes().splitlines(keepends=True)) == sorted(lines)


def test_an_interrupt_leaves_no_request_behind(
    nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(nano, 4)
    free, step, calls = engine.stats().num_free_blocks, engine.step, iter(range(1000))

    def interrupted() -> object:
        if next(calls) == 40:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(engine, "step", interrupted)
    with quiet() as progress, pytest.raises(KeyboardInterrupt):
        write_shard(engine, shard_path(tmp_path, 0), 0, 8, progress)
    engine.check_invariants()
    assert not engine.has_unfinished_requests()
    assert engine.stats().num_free_blocks == free


def test_one_process_to_a_shard(nano: Path, tmp_path: Path) -> None:
    path = shard_path(tmp_path, 1)
    path.write_bytes(b"")
    with path.open("a") as file, quiet() as progress:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process"):
            write_shard(make_engine(nano, 1), path, 1, 2, progress)
    with quiet() as progress:
        assert write_shard(make_engine(nano, 1), path, 1, 2, progress) == 2


def test_a_story_holds_its_opening_and_its_end(nano: Path) -> None:
    for story in StoryWriter(make_engine(nano, 8), 5).write(iter(range(12))):
        assert story.text.startswith(story.opening) or story.finish_reason == "length"
        assert story.finish_reason in ("stop", "length")
        assert 0 < story.num_tokens <= 130 + 48


def test_sentences_and_repeats() -> None:
    text = 'Pip ran. "Stop!" said Dot. He did not st'
    assert sentences(text) == ["Pip ran.", ' "Stop!"', " said Dot."]
    assert words("It's Pip's, 2 of them!") == ["it's", "pip's", "2", "of", "them"]
    assert has_repeat(["a", "b", "c", "a", "b"], 2)
    assert not has_repeat(["a", "b", "c", "a", "c"], 2)
    again = "The cat sat on the mat. Pip was sad. The cat sat on the mat. He left."
    assert before_repeat(again, 6) == "The cat sat on the mat. Pip was sad."
    assert before_repeat('Pip sat. "I am here. Where are', 6) == "Pip sat."


@given(st.text(alphabet='ab. !"\n', max_size=60), st.integers(1, 4))
def test_what_is_kept_repeats_nothing(text: str, length: int) -> None:
    kept = before_repeat(text, length)
    assert text.startswith(kept)
    assert not has_repeat(words(kept), length)
    assert kept.count('"') % 2 == 0


def test_a_good_story_is_kept_as_it_is() -> None:
    assert normalise(GOOD) == GOOD
    assert fault(GOOD) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("red ball", "red ball 🙂"), "not ASCII"),
        (("One day", "In 1999"), "digits"),
        (("He lived", "\n\n- He lived"), "markup"),
        (("a red ball", "a **red** ball"), "markup"),
        (("Pip found", "PIP found"), "markup"),
        (("nobody is lonely", "in this story nobody is lonely"), "about itself"),
        (("He lived", "As an AI language model, he lived"), "about itself"),
        (("Once there", "Here is Pip. Once there"), "about itself"),
        (("and nobody is lonely.", "and all is well. The end."), "about itself"),
        (("a red ball", "a gun"), "unfit subject"),
        (("Once there", "Pip and Dot\n\nOnce there"), "heading or broken end"),
        (("lonely.", "lonely"), "heading or broken end"),
        (("he asked.", 'he asked."'), "quotation not closed"),
        (("Now they play", "He lived on a farm. Now they play"), "repetition"),
        (("Now they play", "One day, Pip found a red ball. Now they play"), "repetition"),
    ],
)
def test_faults(change: tuple[str, str], reason: str) -> None:
    old, new = change
    assert old in GOOD
    assert fault(normalise(GOOD.replace(old, new))) == reason


def test_lengths() -> None:
    assert fault("Pip ran home. He was glad.") == "length"
    assert fault(" ".join(f"{a}{b}." for a in "abcdefghijklmnop" for b in "qrstuvwxyzabcdef")) == "length"


def test_the_end_of_something_is_no_end() -> None:
    assert fault(GOOD.replace("Now they", "In the end they")) is None
    assert fault(GOOD.replace("asked.", "asked. Here is the ball.")) is None


def test_normalise() -> None:
    assert normalise("“It’s  me,”\n said\tPip .He ran,too…") == '"It\'s me,"\n\nsaid Pip .He ran, too...'
    assert normalise("He ran.She fell.\n\n\n\nThe end ,or not") == "He ran. She fell.\n\nThe end, or not"


def story(number: int, text: str, reason: str = "stop") -> Story:
    return Story(number, text[:38], text, reason, 0.7, 50)


def test_cleaning_counts_and_finds_duplicates() -> None:
    near = GOOD.replace("lonely", "alone")
    renamed = GOOD.replace("Pip", "Dot").replace("He ", "She ")
    other = "Tom had a kite. " + " ".join(f"Then {a} saw {b}{a} by {a}{b}." for a in "bcdfgh" for b in "klm")
    stories = [
        story(0, GOOD),
        story(1, GOOD),
        story(2, near),
        story(3, renamed),
        story(4, other),
        story(5, other + " More", "length"),
        story(6, "Too short."),
    ]
    cleaned = clean(stories)
    assert cleaned.kept == [GOOD, other]
    assert cleaned.dropped == {"near duplicate": 4, "length": 1}


@pytest.mark.parametrize("rest", [" And then he", ' He said, "I am so', ' "It is late. We must', "\n\nThe"])
def test_a_story_that_was_cut_off_ends_with_its_last_whole_sentence(rest: str) -> None:
    assert clean([story(0, GOOD + rest, "length")]).kept == [GOOD]


def test_a_story_that_was_cut_off_near_its_beginning_is_too_short() -> None:
    assert clean([story(0, "Bo was a fox. One day, Bo saw a", "length")]).dropped == {"length": 1}


def test_stories_that_only_begin_alike_are_both_kept() -> None:
    opening = "Once there was a little dog named Pip. He lived on a farm. One day, Pip found a ball."
    ends = (
        " He took it to the girl next door, who was glad, and gave him some warm milk and a long hug for it.",
        " Then a big wind came up. All the leaves flew around him like birds. Pip ran up and up a hill too.",
    )
    stories = [Story(i, opening, opening + end, "stop", 0.7, 50) for i, end in enumerate(ends)]
    assert len(clean(stories).kept) == 2


def test_the_split_is_stable_and_of_the_right_size(tmp_path: Path) -> None:
    texts = [f"Story {i}." for i in range(4000)]
    held_out = [text for text in texts if is_held_out(text)]
    assert 70 < len(held_out) < 180
    assert is_held_out(held_out[0])
    write_texts(tmp_path / "new" / "t.jsonl", held_out)
    assert read_texts(tmp_path / "new" / "t.jsonl") == held_out
    assert json.loads((tmp_path / "new" / "t.jsonl").read_text().splitlines()[0]) == {"text": held_out[0]}


def test_a_shard_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert read_shard(tmp_path / "none.jsonl") == []
