"""What the clients of an incident do: who asks what, in which step, and who goes away."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minipaged.engine.intake import Prompt
from minipaged.engine.llm_engine import LLMEngine
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.params import SamplingParams

_NAMES = ("Nora", "Tom", "Mia", "Ben", "Lily", "Max", "Zoe", "Sam")
_THINGS = (
    "a red kite",
    "an old map",
    "a grey cat",
    "a tall tree",
    "a boat",
    "a big drum",
    "a blue hat",
)
_PLACES = ("by the sea", "in the park", "near the hill", "at the farm", "in the snow", "under the bridge")
_ENDINGS = (
    "It was a sunny day.",
    "The wind was cold.",
    "It was very quiet.",
    "It made a funny sound.",
    "That was a big surprise.",
)


def story(draw: random.Random, num_sentences: int) -> str:
    """The beginning of a story that the embedded model can continue."""
    sentences = []
    for _ in range(num_sentences):
        name, thing, place = draw.choice(_NAMES), draw.choice(_THINGS), draw.choice(_PLACES)
        sentences.append(f"{name} found {thing} {place}. {draw.choice(_ENDINGS)}")
    return " ".join(sentences)


@dataclass(frozen=True)
class Arrival:
    """One client.

    Attributes:
        step: the client's request arrives just before this step. Steps count from 0.
        prompt, params, priority: the request.
        leaves: the request is aborted just before this step, if it is not finished by then.
    """

    step: int
    request_id: str
    prompt: Prompt
    params: SamplingParams | BeamSearchParams
    priority: int = 0
    leaves: int | None = None


def play(
    engine: LLMEngine,
    arrivals: Sequence[Arrival],
    abort: Callable[[LLMEngine, str], object] = LLMEngine.abort_request,
) -> None:
    """Serve the clients until none is left. A step passes even if there is nothing to compute.

    Args:
        engine: the engine, without requests.
        arrivals: the clients.
        abort: ends the request of a client that leaves, given the engine and the request's id.
    """
    coming = sorted(arrivals, key=lambda arrival: arrival.step)
    leaving = [arrival for arrival in coming if arrival.leaves is not None]
    step = 0
    while coming or engine.has_unfinished_requests():
        while coming and coming[0].step <= step:
            arrival = coming.pop(0)
            engine.add_request(arrival.request_id, arrival.prompt, arrival.params, arrival.priority)
        for arrival in leaving:
            if arrival.leaves == step:
                abort(engine, arrival.request_id)
        engine.step()
        step += 1


def exactly(num_tokens: int) -> SamplingParams:
    """Sampling parameters for greedy decoding of exactly this many tokens."""
    return SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
