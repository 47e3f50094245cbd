// From a token to its slot: position -> (position // block_size, position % block_size) -> slot, with the numbers.

class Slot {
  constructor(view) {
    this.view = view;
    this.select = make("select", { id: view.id("slot-seq"), onchange: () => this.choose() });
    this.position = make("input", {
      id: view.id("slot-position"),
      type: "number",
      min: 0,
      value: 0,
      inputmode: "numeric",
      oninput: () => this.choose(),
    });
    this.steps = make("ol", { class: "equation", "aria-live": "polite" });
    const { section, aside } = panel(
      "From token to slot",
      "slot",
      make(
        "div",
        { class: "fields" },
        make("label", { for: this.select.id }, "Sequence"),
        this.select,
        make("label", { for: this.position.id }, "Position"),
        this.position,
      ),
      this.steps,
    );
    this.section = section;
    this.aside = aside;
    this.options = "";
  }

  choose() {
    this.view.chooseToken(
      Number(this.select.value),
      Math.max(0, Math.floor(Number(this.position.value) || 0)),
    );
  }

  draw({ state }) {
    const seqs = state.holding;
    const { chosen, run } = this.view;
    let seq = seqs.find((each) => each.seqId === chosen?.seqId) ?? null;
    const missing = chosen && !seq ? (state.sequences.get(chosen.seqId) ?? null) : null;
    if (!chosen) seq = seqs[0] ?? null;
    const listed = missing ? [missing, ...seqs] : seqs;
    const key = listed.map((each) => each.seqId).join();
    if (key !== this.options) {
      this.options = key;
      this.select.replaceChildren(
        ...listed.map((each) => {
          const names = run.names.get(each.seqId);
          return make("option", { value: each.seqId }, `${names.letter}  ${isolate(names.name)}`);
        }),
      );
    }
    this.select.disabled = this.position.disabled = !listed.length;
    const current = seq ?? missing;
    if (current === null) {
      this.token(null);
      this.say(["No sequence holds memory now."]);
      return;
    }
    this.select.value = String(current.seqId);
    const position = chosen?.position ?? Math.max(0, current.numComputed - 1);
    if (document.activeElement !== this.position) this.position.value = String(position);
    this.position.max = String(Math.max(0, current.numTokens - 1));
    this.explain(state, current, position);
  }

  token(token) {
    this.view.token = token;
  }

  explain(state, seq, position) {
    const size = state.engine.block_size;
    const { run } = this.view;
    const text = run.tokenText(seq.seqId, position);
    const tokenId = run.tokens(seq.seqId, position, position + 1)[0];
    this.token(null);
    if (position >= seq.numTokens) {
      this.say([
        `The sequence has ${plural(seq.numTokens, "token")} at this step: positions 0 to ${seq.numTokens - 1}.`,
      ]);
      return;
    }
    const name = make("span", {}, `token ${tokenId}`, ...(text ? [" ", foreign(`“${visible(text)}”`)] : []));
    const isComputed = position < seq.numComputed;
    if (state.engine.kv_layout === "contiguous") {
      if (seq.region === null) this.say([name, "The sequence has no region now."]);
      else
        this.say([
          name,
          equation("slot", `region start + position = ${seq.region} + ${position}`, seq.region + position),
        ]);
      return;
    }
    const index = Math.floor(position / size),
      offset = position % size;
    const split = make(
      "span",
      {},
      make(
        "span",
        { class: "whole" },
        "position ",
        num(position, "position"),
        ` → (${position} // ${size}, ${position} % ${size})`,
      ),
      " ",
      make("span", { class: "whole" }, "= (", num(index, "index"), ", ", num(offset, "offset"), ")"),
    );
    if (index >= seq.table.length) {
      const why = seq.table.length
        ? `its block table has ${plural(seq.table.length, "entry", "entries")}`
        : "its block table is empty";
      this.say([name, split, `No slot yet: ${why}.`]);
      return;
    }
    const blockId = seq.table[index];
    this.token({ seqId: seq.seqId, index, blockId });
    this.say([
      name,
      split,
      make("span", {}, "block_table[", num(index, "index"), "] = ", num(blockId, "block")),
      make(
        "span",
        {},
        "slot = ",
        num(blockId, "block"),
        ` × ${size} + `,
        num(offset, "offset"),
        " = ",
        num(blockId * size + offset, "result"),
      ),
      isComputed
        ? "Its keys and values are in this slot."
        : "The slot is reserved for it; it is not computed yet.",
    ]);
  }

  say(lines) {
    this.steps.replaceChildren(...lines.map((line) => make("li", {}, line)));
  }
}

function num(value, name) {
  return make("b", { class: `n ${name}` }, String(value));
}

function equation(name, terms, result) {
  return make("span", {}, `${name} = ${terms} = `, num(result, "result"));
}
