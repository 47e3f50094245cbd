// One block: its tokens, who holds it, its hash and parent, and its history through the run.

const MOST_LINES = 200;

class Inspector {
  constructor(view) {
    this.view = view;
    this.body = make("div", { class: "inspected" });
    const { section, aside } = panel("Block", "inspector", this.body);
    this.section = section;
    this.aside = aside;
    this.drawn = null;
  }

  draw({ state, holders, number }) {
    const blockId = this.view.selected;
    if (blockId === null || blockId >= state.numBlocks) {
      setText(this.aside, "");
      if (this.drawn !== null || !this.body.firstChild) {
        this.body.replaceChildren(
          make(
            "p",
            { class: "hint" },
            "Choose a block in the pool or in a block table to see its tokens, its holders and its history.",
          ),
        );
      }
      this.drawn = null;
      return;
    }
    this.drawn = blockId;
    setText(this.aside, `block ${blockId}`);
    const contents = state.contents(blockId, holders);
    const cached = state.cached.get(blockId);
    const held = holders.get(blockId) ?? [];
    const facts = make(
      "dl",
      {},
      ...fact("ref_cnt", String(state.refCnt[blockId])),
      ...fact(
        "held by",
        held.length
          ? make("ul", { class: "holders" }, ...held.map((holder) => this.holder(holder)))
          : blockId === 0
            ? "the engine: it is the null block"
            : "no sequence",
      ),
      ...fact(
        "hash",
        cached ? make("code", {}, cached.hash || "not known after a failed step") : "not cached",
      ),
      ...(cached ? fact("parent", this.parent(state, cached)) : []),
      ...fact(
        "slots",
        `${contents.end - contents.start} of ${state.engine.block_size} filled: slots ${blockId * state.engine.block_size} to ${(blockId + 1) * state.engine.block_size - 1}`,
      ),
    );
    this.body.replaceChildren(
      make("div", {}, facts, this.tokens(state, contents)),
      this.history(blockId, number),
    );
  }

  holder({ seqId, index }) {
    const names = this.view.run.names.get(seqId);
    return make("li", {}, chip(names), " ", foreign(names.name), `, logical block ${index}`);
  }

  parent(state, cached) {
    if (cached.parent === null) return "none: it is a first block";
    const found = [...state.cached]
      .filter(([, each]) => each.hash === cached.parent)
      .map(([blockId]) => blockId);
    const links = found.map((blockId) =>
      make(
        "button",
        { type: "button", class: "link", onclick: () => this.view.select(blockId) },
        `block ${blockId}`,
      ),
    );
    return make(
      "span",
      {},
      make("code", {}, cached.parent),
      found.length ? " in " : " (no longer cached)",
      ...links,
    );
  }

  tokens(state, contents) {
    const { run } = this.view;
    const list = make("ol", { class: "slots", "aria-label": "Slots of the block" });
    for (let i = 0; i < state.engine.block_size; i += 1) {
      const position = contents.start + i;
      const isFilled = position < contents.end && contents.seqId !== null;
      const slot = make("li", { class: isFilled ? null : "empty" }, make("small", {}, String(i)));
      if (isFilled) {
        const [tokenId] = run.tokens(contents.seqId, position, position + 1);
        const text = run.tokenText(contents.seqId, position);
        slot.append(
          foreign(text ? visible(text) : `id ${tokenId}`, {
            title: `token ${tokenId}, position ${position}`,
          }),
        );
      }
      list.append(slot);
    }
    return list;
  }

  history(blockId, number) {
    const { run } = this.view;
    const pairs = run.histories[blockId] ?? [];
    const list = make("ol", { class: "history", "aria-label": `History of block ${blockId}` });
    const count = pairs.length / 2;
    let first = 0;
    while (first < count && pairs[2 * first] <= number) first += 1;
    const from = Math.max(0, Math.min(first - MOST_LINES / 2, count - MOST_LINES));
    for (let i = from; i < Math.min(count, from + MOST_LINES); i += 1) {
      const step = pairs[2 * i];
      const event = run.trace.steps[step].events[pairs[2 * i + 1]];
      list.append(
        make(
          "li",
          { class: step > number ? "later" : null, "aria-current": step === number ? "step" : null },
          make(
            "button",
            { type: "button", class: "link", onclick: () => this.view.goTo(step) },
            `step ${step}`,
          ),
          " ",
          ...words(event, run, blockId),
        ),
      );
    }
    const title =
      count > MOST_LINES
        ? `History (${MOST_LINES} of ${whole.format(count)} events)`
        : `History (${plural(count, "event")})`;
    return make(
      "div",
      { class: "history-box" },
      make("h3", {}, title),
      count ? list : make("p", { class: "hint" }, "No event names this block."),
    );
  }
}

function fact(name, value) {
  return [make("dt", {}, name), make("dd", {}, value)];
}

/** A token's text with visible white space, shortened to what a cell can show. */
function visible(text) {
  const short = text.length > 24 ? `${text.slice(0, 23)}…` : text;
  return short.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}
