// The pool of a contiguous cache: its slots in rows, each region at its place, and filled up to its last token.

const STRIP_ROW = 26;

class Strip {
  constructor(view) {
    this.view = view;
    this.shown = [];
    this.canvas = make("canvas", { role: "img", "aria-label": "Regions of the contiguous cache" });
    this.list = make("ul", { class: "regions", "aria-label": "Regions" });
    this.box = make("div", { class: "pool-box" }, this.canvas);
    const item = (name, text) =>
      make("li", {}, make("span", { class: `key ${name}`, "aria-hidden": "true" }), text);
    const legend = make(
      "ul",
      { class: "legend", "aria-label": "Key to the cache" },
      item("held", "tokens"),
      item("reserved", "reserved, and empty"),
      item("rounded", "added by rounding up"),
      item("free", "free"),
    );
    const { section, aside } = panel("Contiguous cache", "pool", this.box, legend, this.list);
    this.section = section;
    this.aside = aside;
  }

  measure() {
    this.width = this.box.clientWidth || 600;
  }

  placeRings() {}

  holder({ seqId, request }) {
    const names = this.view.run.names.get(seqId ?? request);
    return seqId === null ? [foreign(names.requestId)] : [chip(names), " ", foreign(names.name)];
  }

  draw({ state }) {
    const { colours, run } = this.view;
    const numSlots = state.engine.num_blocks * state.engine.block_size;
    const { width } = this;
    const perRow = Math.max(64, Math.min(1024, 2 ** Math.ceil(Math.log2(numSlots / 12))));
    const scale = (width - POOL_GUTTER) / perRow;
    const rows = Math.ceil(numSlots / perRow);
    const context = sized(this.canvas, width, rows * STRIP_ROW);
    const span = (start, count, paint) => {
      for (let at = start; at < start + count;) {
        const row = Math.floor(at / perRow);
        const end = Math.min(start + count, (row + 1) * perRow);
        paint(
          POOL_GUTTER + (at - row * perRow) * scale,
          row * STRIP_ROW + 2,
          (end - at) * scale,
          STRIP_ROW - 6,
        );
        at = end;
      }
    };
    context.fillStyle = colours.empty;
    span(0, numSlots, (x, y, w, h) => context.fillRect(x, y, w, h));
    this.shown = [...state.regions.values()]
      .sort((a, b) => a.start - b.start)
      .map((region) => {
        const seq = region.seqId === null ? null : state.sequences.get(region.seqId);
        const colour = PALETTE[run.names.get(region.seqId ?? region.request).colour];
        context.fillStyle = context.strokeStyle = colour;
        context.globalAlpha = 0.22;
        span(region.start, region.numSlots, (x, y, w, h) => context.fillRect(x, y, w, h));
        context.globalAlpha = 1;
        span(region.start, seq ? seq.numComputed : 0, (x, y, w, h) => context.fillRect(x, y, w, h));
        span(region.start, region.numSlots, (x, y, w, h) =>
          context.strokeRect(x + 0.5, y + 0.5, Math.max(0, w - 1), h - 1),
        );
        context.strokeStyle = colours.muted;
        context.setLineDash([2, 3]);
        span(region.start + region.numSlots, region.numAllocated - region.numSlots, (x, y, w, h) =>
          context.strokeRect(x + 0.5, y + 0.5, Math.max(0, w - 1), h - 1),
        );
        context.setLineDash([]);
        return { ...region, filled: seq ? seq.numComputed : 0 };
      });
    context.font = `11px ${colours.font}`;
    context.fillStyle = colours.muted;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let row = 0; row < rows; row += 1)
      context.fillText(whole.format(row * perRow), POOL_GUTTER - 8, row * STRIP_ROW + 12);
    this.list.replaceChildren(
      ...this.shown.map((region) =>
        make(
          "li",
          {},
          ...this.holder(region),
          ` slots ${region.start} to ${region.start + region.numAllocated - 1}: ${region.filled} filled, ${region.numSlots} reserved` +
            (region.numAllocated > region.numSlots ? `, ${region.numAllocated} allocated` : ""),
        ),
      ),
    );
    const taken = this.shown.reduce((sum, region) => sum + region.numAllocated, 0);
    setText(this.aside, `${whole.format(taken)} of ${plural(numSlots, "slot")} reserved`);
  }
}
