"""The requests for stories: prompts, openings and closings, all drawn from small lists.

Each story has a main character. The first words of the story and of its end are given, which makes a small
model's stories more coherent. The opening shows how short the sentences should be. After words such as "in
the end", the model completes the sentence and stops.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


SYSTEM = "You write short stories for young children. Use simple words and short sentences."

GIRLS = _listed(
    "Lily Mia Anna Lucy Emma Sara Nora Ella Rose Zoe Amy Ruby Ivy Clara Grace Molly Lina Kate Jane Tess "
    "Maya Eva Holly Poppy Nina"
)
BOYS = _listed(
    "Tom Sam Ben Max Jack Tim Leo Finn Owen Kai Adam Noah Luke Oscar Will Ted Hugo Dan Joe Nick Ali Paul "
    "Peter Henry Jim"
)
PETS = _listed("Pip Dot Coco Bean Milo Daisy Toby Button Rusty Bella Fuzzy Pepper Olive Sunny Waffles Bingo")
ANIMALS = _listed(
    "cat dog rabbit bear bird fox mouse duck frog turtle pig horse owl squirrel hen lamb goat puppy kitten "
    "monkey hedgehog fish bee elephant"
)
FRIENDS = (
    "Mom",
    "Dad",
    "Grandma",
    "Grandpa",
    "a friend",
    "{his} brother",
    "{his} sister",
    "{his} friend",
    "{his} cousin",
)
PLACES = (
    "the park",
    "the garden",
    "the woods",
    "the village",
    "the old barn",
    "the meadow",
    "the yard",
    "the forest",
    "the field",
    "the big town",
)
THINGS = _listed(
    "ball kite hat cake boat apple book shell drum lamp bell flower basket key blanket stone leaf cup box "
    "toy doll balloon button ring spoon scarf coin puzzle picture bike"
)
LOOKS = _listed("red blue green yellow small big old new shiny soft little round pretty")
MOODS = _listed("kind brave shy happy curious quiet clever funny gentle busy sleepy cheerful")
HOMES = (
    "in a small house by the sea",
    "in a little house near the woods",
    "on a farm",
    "in a quiet village",
    "in a big town",
    "near the river",
    "in a house with a red door",
    "at the foot of a hill",
)
ANIMAL_HOMES = (
    "in the woods",
    "on a farm",
    "near the river",
    "in a big garden",
    "under an old tree",
    "by the pond",
)
HOBBIES = (
    "to play outside",
    "to read books",
    "to sing songs",
    "to draw pictures",
    "to run in the grass",
    "to look at the stars",
    "to jump in puddles",
    "to eat cookies",
    "to help others",
    "to play with friends",
    "to listen to stories",
    "to pick flowers",
)
TIMES = (
    "One day,",
    "One sunny day,",
    "One morning,",
    "One night,",
    "One rainy day,",
    "One cold day,",
    "One afternoon,",
    "One windy day,",
    "On Saturday,",
    "In the summer,",
)

PLOTS = (
    ("loses a {t} and looks for it", "{n} could not find the {t}."),
    ("finds a {t} in {p}", "{n} found a {l} {t} in {p}."),
    ("helps a lost {a}", "{n} saw a little {a} in {p}. The {a} was lost."),
    ("learns to share a {t}", "{n} did not want to share the {l} {t}."),
    ("makes a new friend", "{n} met a {a} in {p}."),
    ("is afraid of the dark and learns to be brave", "{n} could not sleep. It was very dark."),
    ("plants a seed and waits for it to grow", "{n} planted a small seed in the garden."),
    ("flies a kite on a windy day", "{n} took a {l} kite to {p}. The wind was strong."),
    ("breaks a {t} and tells the truth", "{n} broke the {t}. Nobody saw it."),
    ("bakes a cake for {f}", "{n} wanted to bake a cake for {f}."),
    ("gets lost in {p} and finds the way home", "{n} was lost in {p}."),
    ("takes care of a sick {a}", "{n} found a small {a}. It was sick."),
    ("builds a little house with {f}", "{n} and {f} wanted to build a little house."),
    ("plays in the rain", "{n} looked out of the window. It was raining."),
    ("says sorry to {f}", "{n} was angry and shouted at {f}."),
    ("goes to {p} with {f}", "{n} went to {p} with {f}."),
    ("goes fishing with {f}", "{n} went to the lake with {f}. They wanted to catch a fish."),
    ("cannot sleep and counts the stars", "{n} was in bed but could not sleep."),
    ("climbs a tall tree", "{n} saw a tall tree in {p}."),
    ("has a birthday and gets a {t}", "it was {n}'s birthday. There was a big box on the table."),
    ("helps {f} in {p}", "{n} went to {p} to help {f}."),
    ("sees a rainbow", "{n} saw a rainbow over {p}."),
    ("learns to ride a bike", "{n} got a {l} bike."),
    ("gives a {t} to somebody who is sad", "{n} saw {f} crying."),
    ("hears a strange sound at night", "{n} heard a strange sound."),
    ("wants a {a} as a pet", "{n} saw a {a} and wanted to take it home."),
    ("paints a picture for {f}", "{n} painted a picture for {f}."),
    ("is sick and gets better", "{n} was sick and had to stay in bed."),
    ("goes on a picnic with {f}", "{n} and {f} went on a picnic in {p}."),
    ("makes soup with {f}", "{n} was hungry. {n} wanted to make soup with {f}."),
    ("learns to swim", "{n} went to the lake to learn to swim."),
    ("builds a snowman", "it snowed. {n} ran outside to build a snowman."),
    ("waits for a letter from {f}", "{n} got a letter from {f}."),
    ("catches a {a} and lets it go", "{n} caught a {a} in {p}."),
    ("cleans a messy room", "{n}'s room was a mess."),
    ("loses a tooth", "{n} lost a tooth."),
    ("visits {f}", "{n} went to visit {f}."),
    ("plays hide and seek with {f}", "{n} and {f} played hide and seek in {p}."),
    ("wants to win a race", "there was a race in {p}. {n} wanted to win."),
    ("is late for school", "{n} woke up late."),
    ("feeds a hungry {a}", "{n} saw a {a} in {p}. It was hungry."),
    ("finds out who took the {t}", "the {l} {t} was gone. {n} wanted to know who took it."),
)

CLOSINGS = (
    "In the end,",
    "In the end, {n}",
    "At last,",
    "At last, {n}",
    "That night, {n}",
    "That night, {n} went to bed and",
    "From that day on,",
    "From that day on, {n}",
    "After that, {n}",
    "{n} was very happy.",
    "{n} smiled.",
    "{n} learned that",
    "When it got dark, {n}",
    "Then it was time to go home.",
    "And so {n}",
    "Everyone was happy.",
    "Now {n}",
)


@dataclass(frozen=True)
class StoryPlan:
    """One story before it is written.

    Attributes:
        request: the user message to the model.
        opening: the story's first words, which the model continues. No space at the end.
        closing: the first words of the story's end.
    """

    request: str
    opening: str
    closing: str


def draw_plan(rng: random.Random) -> StoryPlan:
    """Draw a main character, an event, and the words at the beginning and at the end."""
    kind, name, home, he = _somebody(rng)
    thing, place, look = rng.choice(THINGS), rng.choice(PLACES), rng.choice(LOOKS)
    friend = rng.choice(FRIENDS).format(his="his" if he == "He" else "her")
    animal = rng.choice(ANIMALS)
    about, situation = rng.choice(PLOTS)

    def fill(text: str) -> str:
        return text.format(n=name, t=thing, p=place, l=look, f=friend, a=animal)

    introduction = rng.choice(
        (
            f"Once upon a time, there was a {rng.choice(MOODS)} {kind} named {name}.",
            f"Once upon a time, there was a little {kind} named {name}.",
            f"Once there was a little {kind} named {name}.",
            f"Once there was a {kind} named {name} who lived {home}.",
            f"{name} was a little {kind}.",
            f"{name} was a {rng.choice(MOODS)} {kind}.",
            f"There was a {rng.choice(MOODS)} {kind} named {name} {home}.",
            f"{name} was a little {kind} who lived {home}.",
            f"There was once a {look} {kind} named {name}." if kind in ANIMALS else f"{name} lived {home}.",
        )
    )
    trait = rng.choice(
        (
            "",
            f" {he} loved {rng.choice(HOBBIES)}.",
            f" {he} liked {rng.choice(HOBBIES)}.",
            f" {he} had a {look} {thing}.",
            f" {he} was very {rng.choice(MOODS)}.",
        )
    )
    begin = rng.choice(TIMES)
    event = f"{begin} {fill(situation)}" if rng.random() < 0.8 else f"{begin} {name}"
    opening = event if rng.random() < 0.15 else f"{introduction}{trait} {event}"
    return StoryPlan(
        request=_with_an(f"Write a story about a {kind} named {name} who {fill(about)}."),
        opening=_with_an(opening),
        closing=fill(rng.choice(CLOSINGS)),
    )


def _with_an(text: str) -> str:
    return re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", text)


def _somebody(rng: random.Random) -> tuple[str, str, str, str]:
    """Draw a main character: kind, name, home, and "He" or "She"."""
    drawn = rng.random()
    if drawn < 0.36:
        return "girl", rng.choice(GIRLS), rng.choice(HOMES), "She"
    if drawn < 0.72:
        return "boy", rng.choice(BOYS), rng.choice(HOMES), "He"
    return rng.choice(ANIMALS), rng.choice(PETS), rng.choice(ANIMAL_HOMES), rng.choice(("He", "She"))
