"""What a replay page shows, read from its document and its canvas, and compared with a state of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minipaged.trace.state import SequenceState, TraceState

if TYPE_CHECKING:
    from playwright.sync_api import Page

# One look at the page for all that a test compares: a look costs more than what is read.
_READ = """(run) => {
  const root = document.querySelectorAll("article.run")[run];
  const all = (selector, from = root) => [...from.querySelectorAll(selector)];
  const values = (chart) => all(`figure[data-chart="${chart}"] b`).map((each) => each.textContent);
  return {
    step: replay.step(run),
    pool: replay.pool(run),
    queues: all(".queue").map((list) => all("bdi", list).map((each) => each.textContent)),
    tables: all(".tables .row:not(.heads)").map((row) => all(".entry", row).map((cell) => cell.textContent)),
    heads: all(".tables .row:not(.heads) .head bdi").map((each) => each.textContent),
    scheduled: root.querySelector(".step .aside").textContent,
    chunks: all(".chunk").map((each) => each.textContent),
    statuses: all(".text .status").map((each) => each.textContent),
    outputs: all(".text").map((each) => all(".output", each).map((text) => text.textContent)),
    slots: values("waste"), hits: values("hits"), preemptions: values("preemptions"),
    requests: values("requests"),
  };
}"""

KINDS = ("token_states", "reservation", "internal_fragmentation", "external_fragmentation", "free")


def go_to(page: Page, position: int) -> None:
    """Show a position at once."""
    page.evaluate("position => { replay.draw(position); }", position)


def assert_shows(page: Page, state: TraceState, run: int = 0) -> None:
    """The page shows this state of a small trace."""
    shown: dict[str, Any] = page.evaluate(_READ, run)
    assert shown["step"] == state.step
    assert shown["queues"] == [list(state.running), list(state.waiting), list(state.swapped)]
    if state.blocks:
        _assert_shows_blocks(shown, state)
    if state.regions:
        _assert_shows_regions(shown, state)
    if state.step > 0:
        unit = "token" if state.token_budget == 1 else "tokens"
        expected = f"{state.num_scheduled_tokens:,} of {state.token_budget:,} {unit} scheduled"
        assert shown["scheduled"] in (expected, "the run has ended")
    assert len(shown["chunks"]) == len(state.chunks)
    for text, chunk in zip(shown["chunks"], state.chunks, strict=True):
        last = chunk.start + chunk.num_tokens - 1
        where = f"{chunk.start}" if chunk.num_tokens == 1 else f"{chunk.start}–{last}"
        assert text.endswith(f" {chunk.num_tokens:,} at {where}")
    if shown["slots"]:
        assert shown["slots"] == [f"{getattr(state.slots, kind):,}" for kind in KINDS]
    if shown["hits"]:
        assert shown["hits"] == [f"{state.num_hit_tokens:,}"]
    assert shown["preemptions"] == [f"{state.num_preemptions:,}"]
    counts = [state.running, state.waiting, state.swapped]
    assert shown["requests"] == [str(len(each)) for each in counts]
    assert [text.split(",")[0] for text in shown["statuses"]] == [each.status for each in state.requests]
    assert shown["outputs"] == [
        [_output(state.sequences[seq_id]) for seq_id in request.seq_ids] for request in state.requests
    ]


def _output(seq: SequenceState) -> str:
    """Token ids stand for the output where there is no text."""
    return seq.text or " ".join(map(str, seq.token_ids[seq.num_prompt_tokens :]))


def _assert_shows_blocks(shown: dict[str, Any], state: TraceState) -> None:
    for cell, block in zip(shown["pool"], state.blocks, strict=True):
        assert (cell["block"], cell["filled"]) == (block.block_id, block.num_filled)
        assert cell["refCnt"] == block.ref_cnt
        assert cell["owners"] == [holder.seq_id for holder in block.holders]
        assert cell["cached"] == (block.block_hash is not None)
    place = {request_id: i for i, request_id in enumerate(state.running)}
    holding = sorted(
        (seq for seq in state.sequences.values() if seq.block_ids),
        key=lambda seq: (place.get(seq.request_id, len(place)), seq.seq_id),
    )
    assert shown["tables"] == [[str(block_id) for block_id in seq.block_ids] for seq in holding]
    assert [name.split(" #")[0] for name in shown["heads"]] == [seq.request_id for seq in holding]


def _assert_shows_regions(shown: dict[str, Any], state: TraceState) -> None:
    for drawn, region in zip(shown["pool"], state.regions, strict=True):
        seq = None if region.seq_id is None else state.sequences[region.seq_id]
        assert (drawn["start"], drawn["numSlots"]) == (region.start, region.num_slots)
        assert (drawn["numAllocated"], drawn["seqId"]) == (region.num_allocated, region.seq_id)
        assert drawn["filled"] == (0 if seq is None else seq.num_computed_tokens)
