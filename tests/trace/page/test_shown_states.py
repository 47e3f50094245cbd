"""The page shows the states of real runs: those that `Trace.at` has, in whatever order they are visited."""

from __future__ import annotations

import random

import pytest

from minipaged.events import Event
from minipaged.loading.loader import LoadedModel
from minipaged.trace.page.build import replay_page
from minipaged.trace.trace import Trace
from tests.engine.test_histories import live_one_history
from tests.trace.page.conftest import OpenPage
from tests.trace.page.long_trace import long_trace
from tests.trace.page.shown import assert_shows, go_to


def history(model: LoadedModel, seed: int) -> Trace:
    """The trace of one random history: any layout, aborts, failed steps, samples and beams."""
    events: list[Event] = []
    live_one_history(model, seed, events.append)
    return Trace.of(events)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_page_shows_each_state_of_a_run(nano_model: LoadedModel, open_page: OpenPage, first: int) -> None:
    for seed in range(first, first + 10):
        trace = history(nano_model, seed)
        page = open_page([trace])
        steps = list(range(trace.num_steps + 1))
        random.Random(seed).shuffle(steps)
        for step in [*steps[:12], *range(min(trace.num_steps, 4), -1, -1)]:
            go_to(page, step)
            assert_shows(page, trace.at(step))
        go_to(page, 10**6)
        assert_shows(page, trace.final())
        page.close()


def test_a_block_that_is_chosen_tells_its_tokens_its_holders_and_its_history(
    nano_model: LoadedModel, open_page: OpenPage
) -> None:
    trace = next(
        trace
        for trace in (history(nano_model, seed) for seed in range(100))
        if trace.engine.enable_prefix_caching
        and any(block.ref_cnt > 1 for block in trace.at(trace.num_steps // 2).blocks[1:])
    )
    step = trace.num_steps // 2
    state = trace.at(step)
    page = open_page([trace], f"#step={step}")
    for block in state.blocks[1:]:
        where = page.evaluate("block => replay.place(block)", block.block_id)
        page.mouse.click(where["x"], where["y"])
        panel = page.locator(".inspector")
        assert panel.locator(".aside").inner_text() == f"block {block.block_id}"
        assert panel.locator("dd").first.inner_text() == str(block.ref_cnt)
        filled = panel.locator(".slots li:not(.empty) bdi")
        titles = [filled.nth(i).get_attribute("title") for i in range(filled.count())]
        assert [title.split(",")[0] for title in titles if title] == [
            f"token {each}" for each in block.token_ids
        ]
        held = panel.locator(".holders li").all_inner_texts()
        assert [text.rsplit(" ", 1)[1] for text in held] == [str(holder.index) for holder in block.holders]
        if block.block_hash is not None:
            assert block.block_hash in panel.locator("dl").inner_text()
            assert (block.parent_block_hash or "none") in panel.locator("dl").inner_text()
        steps = [
            int(text.removeprefix("step ")) for text in panel.locator(".history button").all_inner_texts()
        ]
        assert steps == sorted(steps)
        if block.ref_cnt:
            assert min(steps) <= step


def test_a_token_s_slot_is_worked_out_with_its_numbers(nano_model: LoadedModel, open_page: OpenPage) -> None:
    trace = next(
        trace
        for trace in (history(nano_model, seed) for seed in range(100))
        if trace.engine.kv_layout == "paged"
        and trace.engine.block_size > 1
        and any(seq.block_ids for seq in trace.at(2).sequences.values())
    )
    state, size = trace.at(2), trace.engine.block_size
    page = open_page([trace], "#step=2")
    for seq in state.sequences.values():
        if not seq.block_ids:
            continue
        page.get_by_label("Sequence", exact=True).select_option(str(seq.seq_id))
        for position in range(seq.num_computed_tokens):
            page.get_by_label("Position").fill(str(position))
            index, offset = divmod(position, size)
            block_id = seq.block_ids[index]
            lines = page.locator(".equation li").all_inner_texts()
            assert lines[0].startswith(f"token {seq.token_ids[position]}")
            assert (
                lines[1]
                == f"position {position} → ({position} // {size}, {position} % {size}) = ({index}, {offset})"
            )
            assert lines[2] == f"block_table[{index}] = {block_id}"
            assert lines[3] == f"slot = {block_id} × {size} + {offset} = {block_id * size + offset}"


def test_a_cell_of_a_block_table_and_its_block_are_marked_together(
    nano_model: LoadedModel, open_page: OpenPage
) -> None:
    trace = next(
        trace
        for trace in (history(nano_model, seed) for seed in range(100))
        if any(seq.block_ids for seq in trace.at(min(3, trace.num_steps)).sequences.values())
    )
    page = open_page([trace], "#step=3")
    cell = page.locator(".entry").first
    cell.hover()
    block_id = cell.inner_text()
    assert page.locator(".pool .readout").inner_text().startswith(f"Block {block_id}:")
    assert f"physical block {block_id}" in page.locator(".tables-panel .readout").inner_text()
    ring = page.locator(".ring.hover").bounding_box()
    where = page.evaluate("block => replay.place(block)", int(block_id))
    assert ring is not None
    assert abs(ring["x"] + ring["width"] / 2 - where["x"]) < 2
    page.mouse.move(where["x"], where["y"])
    assert page.locator(".entry.hovered").first.inner_text() == block_id


def test_a_long_run_over_a_large_pool_is_shown(open_page: OpenPage) -> None:
    trace = long_trace(300, 4000)
    trace.check()
    page = open_page([trace])
    for step in (300, 20, 299, 150):
        go_to(page, step)
        state = trace.at(step)
        shown = page.evaluate("() => replay.pool()")
        assert [cell["filled"] for cell in shown] == [block.num_filled for block in state.blocks]
        assert [cell["refCnt"] for cell in shown] == [block.ref_cnt for block in state.blocks]
        texts = [each for each in page.locator(".tables .head bdi").all_inner_texts() if each]
        assert 8 <= len(texts) < len(state.running)  # only the rows in sight are filled


def test_a_page_of_a_demo_is_small(nano_model: LoadedModel) -> None:
    pages = [replay_page([history(nano_model, seed)]) for seed in range(5)]
    assert max(len(page.encode()) for page in pages) < 400_000
