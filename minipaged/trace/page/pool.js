// The pool: a cell for each block. The cell has the block's fill level, and the colours of the sequences that hold
// the block. Arrow keys move the selection while the pool has the focus.

const POOL_GUTTER = 44,
  POOL_HEIGHT = 380;

class Pool {
  constructor(view) {
    this.view = view;
    this.shown = [];
    this.canvas = make("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "block pool",
      "aria-label": "Block pool",
      "aria-describedby": view.id("readout"),
    });
    this.rings = Object.fromEntries(
      ["token", "hover", "selected"].map((name) => [
        name,
        make("div", { class: `ring ${name}`, hidden: true }),
      ]),
    );
    this.readout = make("p", { class: "readout", id: view.id("readout"), "aria-live": "polite" });
    this.table = make("tbody");
    this.details = make(
      "details",
      { class: "as-table" },
      make("summary", {}, "The same as a table"),
      make(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Blocks as a table" },
        make(
          "table",
          {},
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              ...["block", "slots filled", "ref_cnt", "held by", "cached", "in this step"].map((name) =>
                make("th", { scope: "col" }, name),
              ),
            ),
          ),
          this.table,
        ),
      ),
    );
    this.box = make("div", { class: "pool-box" }, this.canvas, ...Object.values(this.rings));
    const { section, aside } = panel(
      "Block pool",
      "pool",
      this.box,
      this.readout,
      poolLegend(),
      this.details,
    );
    this.section = section;
    this.aside = aside;
    this.canvas.addEventListener("pointermove", (event) => view.hover(this.blockAt(event)));
    this.canvas.addEventListener("pointerleave", () => view.hover(null));
    this.canvas.addEventListener("click", (event) => view.select(this.blockAt(event)));
    this.canvas.addEventListener("focus", () => view.select(view.selected ?? 0));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.details.addEventListener("toggle", () => this.drawTable());
  }

  /** Sizes are read once, not at each step: reading one makes the browser lay out the page. */
  measure() {
    this.width = this.box.clientWidth || 600;
    this.shown = [];
    this.painted = null;
  }

  layOut(width, numBlocks) {
    const room = Math.max(120, width - POOL_GUTTER);
    let size = 40;
    while (size > 6 && Math.ceil(numBlocks / Math.floor(room / size)) * size > POOL_HEIGHT) size -= 1;
    this.size = size;
    this.columns = Math.max(1, Math.min(Math.floor(room / size), Math.max(numBlocks, 1)));
    if (this.columns > 20) this.columns -= this.columns % 10;
    this.rows = Math.max(1, Math.ceil(numBlocks / this.columns));
  }

  place(blockId) {
    const column = blockId % this.columns,
      row = Math.floor(blockId / this.columns);
    return [POOL_GUTTER + column * this.size, row * this.size];
  }

  blockAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - POOL_GUTTER) / this.size);
    const row = Math.floor((event.clientY - box.top) / this.size);
    const blockId = row * this.columns + column;
    return column >= 0 && column < this.columns && blockId < this.state.numBlocks ? blockId : null;
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    let to = (this.view.selected ?? 0) + (steps[event.key] ?? 0);
    if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.state.numBlocks - 1;
    else if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (to >= 0 && to < this.state.numBlocks) this.view.select(to);
  }

  draw({ state, holders }) {
    this.state = state;
    this.holders = holders;
    const colours = this.view.colours;
    if (!this.painted) this.paintFrame(state.numBlocks, colours);
    const look = { colours, names: this.view.run.names, blockSize: state.engine.block_size };
    for (let blockId = 0; blockId < state.numBlocks; blockId += 1) {
      const contents = state.contents(blockId, holders);
      const cell = {
        block: blockId,
        filled: contents.end - contents.start,
        refCnt: state.refCnt[blockId],
        owners: (holders.get(blockId) ?? []).map((holder) => holder.seqId),
        cached: state.cached.has(blockId),
        mark: markOf(state.changes.get(blockId) ?? 0),
      };
      if (!isSame(cell, this.shown[blockId]))
        paintCell(this.painted, cell, ...this.place(blockId), this.size, look);
      this.shown[blockId] = cell;
    }
    const used = state.numBlocks - 1 - state.numFree;
    const counts = `${whole.format(used)} of ${plural(state.numBlocks - 1, "block")} used, ${whole.format(state.numFree)} free`;
    const isWrong = state.countedFree !== state.numFree;
    setText(this.aside, isWrong ? `${counts}, but the engine counts ${whole.format(state.countedFree)} free` : counts);
    this.placeRings();
    this.drawTable();
  }

  /** An empty canvas, with the number of each row's first block. */
  paintFrame(numBlocks, colours) {
    this.layOut(this.width, numBlocks);
    const context = (this.painted = sized(this.canvas, this.width, this.rows * this.size + 1));
    context.fillStyle = colours.muted;
    context.font = `11px ${colours.font}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(14 / this.size));
    for (let row = 0; row < this.rows; row += every) {
      context.fillText(String(row * this.columns), POOL_GUTTER - 8, row * this.size + this.size / 2);
    }
  }

  placeRings() {
    const { selected, hovered, token } = this.view;
    this.ring("selected", selected);
    this.ring("hover", hovered);
    this.ring("token", token?.blockId ?? null);
    setText(this.readout, this.describe(hovered ?? selected));
  }

  ring(name, blockId) {
    const ring = this.rings[name];
    ring.hidden = blockId === null || blockId === undefined || !this.state || blockId >= this.state.numBlocks;
    if (ring.hidden) return;
    const [x, y] = this.place(blockId);
    const gap = this.size >= 14 ? 2 : 1;
    ring.style.transform = `translate(${x - 3}px, ${y - 3}px)`;
    ring.style.width = ring.style.height = `${this.size - gap + 6}px`;
  }

  describe(blockId) {
    if (blockId === null || blockId === undefined || !this.state)
      return "Point at a block, or choose one with the arrow keys.";
    if (blockId === 0)
      return "Block 0 is the null block: padding is written into it, and no sequence holds it.";
    const { filled, refCnt, cached, mark } = this.shown[blockId];
    const held = this.view.heldBy(this.holders.get(blockId) ?? []);
    const parts = [
      `Block ${blockId}: ${filled} of ${this.state.engine.block_size} slots filled, ref_cnt ${refCnt}`,
    ];
    parts.push(held ? `held by ${held}` : cached ? "free, but cached" : "free");
    if (held && cached) parts.push("cached");
    if (mark) parts.push(MARKS[mark]);
    return parts.join("; ");
  }

  drawTable() {
    if (!this.details.open || !this.state) return;
    const rows = this.shown.filter((cell) => cell.block > 0 && (cell.refCnt || cell.cached || cell.mark));
    this.table.replaceChildren(
      ...rows.map((cell) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, String(cell.block)),
          make("td", {}, String(cell.filled)),
          make("td", {}, String(cell.refCnt)),
          make("td", {}, this.view.heldBy(this.holders.get(cell.block) ?? []) || "–"),
          make("td", {}, cell.cached ? "yes" : "no"),
          make("td", {}, cell.mark ? MARKS[cell.mark] : "–"),
        ),
      ),
    );
  }
}
