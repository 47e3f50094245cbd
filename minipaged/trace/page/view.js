// View: one run on the page. Its panels show one step. All of them mark what is pointed at, chosen or followed.

class View {
  constructor(run, runs, axis, number, player) {
    Object.assign(this, { run, runs, axis, player });
    this.prefix = `run${number}`;
    this.selected = null; // a block that was chosen
    this.hovered = null; // a block that is pointed at
    this.chosen = null; // a token that was chosen: {seqId, position}
    this.token = null; // where that token is: {seqId, index, blockId}
    this.all = false; // whether all rows are drawn, for print
    this.colours = themeColours();
    const { kv_layout: layout } = run.engine;
    this.pool = layout === "contiguous" ? new Strip(this) : layout === "paged" ? new Pool(this) : null;
    this.step = new Step(this);
    this.tables = layout === "paged" ? new Tables(this) : null;
    this.slot = layout === "none" ? null : new Slot(this);
    this.inspector = layout === "paged" ? new Inspector(this) : null;
    this.timeline = new Timeline(this);
    this.charts = new Charts(this);
    this.texts = new Texts(this);
    const sections = (...panels) => panels.filter(Boolean).map((each) => each.section);
    const none =
      layout === "none"
        ? make(
            "p",
            { class: "panel pool hint" },
            "This engine keeps no cache: each step computes every sequence from its first token.",
          )
        : null;
    this.root = make(
      "article",
      { class: "run", "aria-label": `Run: ${plainly(run.trace.name)}` },
      this.heading(),
      make(
        "div",
        { class: "columns" },
        make("div", { class: "left" }, none, ...sections(this.pool, this.tables)),
        make("div", { class: "right" }, ...sections(this.step)),
      ),
      make("div", { class: "columns" }, ...sections(this.inspector, this.slot)),
      ...sections(this.timeline, this.charts, this.texts),
    );
  }

  id(name) {
    return `${this.prefix}-${name}`;
  }

  get panels() {
    return [
      this.pool,
      this.slot,
      this.tables,
      this.step,
      this.inspector,
      this.timeline,
      this.charts,
      this.texts,
    ].filter(Boolean);
  }

  heading() {
    const { engine, trace, numSteps } = this.run;
    const facts = [
      engine.model,
      engine.stage === null ? null : `stage ${engine.stage}`,
      engine.kv_layout === "none"
        ? "no cache"
        : `${plural(engine.num_blocks, "block")} of ${engine.block_size} tokens`,
      `${engine.batching} batching`,
      `${engine.scheduling_policy}`,
      engine.enable_prefix_caching ? "prefix caching" : null,
      engine.kv_layout === "paged" ? `preemption: ${engine.preemption_mode}` : null,
      `budget ${plural(engine.max_num_batched_tokens, "token")}`,
      plural(numSteps, "step"),
    ].filter(Boolean);
    return make(
      "header",
      { class: "run-head" },
      make("h2", {}, foreign(trace.name)),
      make("p", { class: "facts" }, ...facts.map((each) => foreign(each, { class: "fact" }))),
      trace.remark ? make("p", { class: "remark", role: "note" }, sentence(trace.remark)) : null,
    );
  }

  /** After a change of size, of colours or of the axis. */
  measure() {
    this.colours = themeColours();
    for (const each of this.panels) each.measure?.();
  }

  draw(number, isPast = false) {
    this.number = number;
    this.isPast = isPast;
    const state = this.run.seek(number);
    this.shared = { state, number, holders: state.holders() };
    for (const each of this.panels) each.draw(this.shared);
    this.highlight();
  }

  highlight() {
    this.pool?.placeRings();
    this.tables?.highlight();
  }

  hover(blockId) {
    if (blockId === this.hovered) return;
    this.hovered = blockId;
    this.highlight();
  }

  select(blockId) {
    if (blockId === null || blockId === this.selected) return;
    this.selected = blockId;
    this.inspector?.draw(this.shared);
    this.highlight();
  }

  chooseToken(seqId, position) {
    this.chosen = { seqId, position };
    this.slot?.draw(this.shared);
    this.highlight();
  }

  goTo(step) {
    this.player.goToStep(this, step);
  }

  /** "A request 1, logical block 2; …" for a block's holders. */
  heldBy(holders) {
    const shown = holders.slice(0, 6).map(({ seqId, index }) => {
      const { letter, name } = this.run.names.get(seqId);
      return `${letter} ${isolate(name)} [${index}]`;
    });
    return (
      shown.join(", ") + (holders.length > shown.length ? ` and ${holders.length - shown.length} more` : "")
    );
  }
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}
