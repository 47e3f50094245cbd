// Block tables: a row for each sequence with blocks, and a cell for each logical block, which names the physical block.
// All rows have the same height, so only those in sight need to be filled.

const TABLE_ROW = 28,
  TABLE_HEAD = 150,
  TABLE_HEIGHT = 308;

class Tables {
  constructor(view) {
    this.view = view;
    this.rows = [];
    this.active = null; // {seqId, index}
    this.top = 0;
    this.heads = make(
      "div",
      { class: "row heads", role: "row" },
      make("span", { class: "head", role: "columnheader" }, "logical block"),
    );
    this.grid = make(
      "div",
      {
        class: "tables",
        role: "grid",
        tabindex: 0,
        "aria-label": "Block tables: logical to physical blocks",
      },
      this.heads,
    );
    this.scroll = make("div", { class: "scroll" }, this.grid);
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    const { section, aside } = panel("Block tables", "tables-panel", this.scroll, this.readout);
    this.section = section;
    this.aside = aside;
    this.scroll.addEventListener("scroll", () => {
      this.top = this.scroll.scrollTop;
      this.fill();
    });
    this.grid.addEventListener("pointerover", (event) => this.point(entryOf(event.target)));
    this.grid.addEventListener("pointerleave", () => this.point(null));
    this.grid.addEventListener("click", (event) => this.choose(entryOf(event.target)));
    this.grid.addEventListener("keydown", (event) => this.key(event));
  }

  point(entry) {
    this.entry = entry;
    this.view.hover(entry === null ? null : entry.blockId);
  }

  choose(entry) {
    if (entry === null) return;
    this.active = entry;
    this.view.select(entry.blockId);
  }

  key(event) {
    if (!this.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    let row = Math.max(
      0,
      this.rows.findIndex((each) => each.seq.seqId === this.active?.seqId),
    );
    let index = this.active?.index ?? -1;
    if (event.key === "ArrowRight") index += 1;
    else if (event.key === "ArrowLeft") index -= 1;
    else if (event.key === "ArrowDown") row += 1;
    else if (event.key === "ArrowUp") row -= 1;
    else return;
    event.preventDefault();
    event.stopPropagation();
    row = Math.min(Math.max(row, 0), this.rows.length - 1);
    const { seq } = this.rows[row];
    index = Math.min(Math.max(index, 0), seq.table.length - 1);
    this.scroll.scrollTop = Math.min(this.scroll.scrollTop, row * TABLE_ROW);
    const bottom = (row + 3) * TABLE_ROW - this.scroll.clientHeight;
    this.scroll.scrollTop = Math.max(this.scroll.scrollTop, bottom);
    this.entry = { seqId: seq.seqId, index, blockId: seq.table[index] };
    this.choose(this.entry);
  }

  draw({ state, holders }) {
    this.state = state;
    this.holders = holders;
    const seqs = [...state.sequences.values()].filter((seq) => seq.table.length);
    const place = new Map(state.running.map((key, i) => [key, i]));
    seqs.sort((a, b) => (place.get(a.request) ?? 1e9) - (place.get(b.request) ?? 1e9) || a.seqId - b.seqId);
    while (this.rows.length > seqs.length) this.rows.pop().row.remove();
    while (this.rows.length < seqs.length) {
      const head = make("span", { class: "head", role: "rowheader" });
      const row = make("div", { class: "row", role: "row" }, head);
      this.grid.append(row);
      this.rows.push({ row, head, cells: [], seqId: null, seq: null });
    }
    const longest = Math.max(0, ...seqs.map((seq) => seq.table.length));
    while (this.heads.childElementCount - 1 > longest) this.heads.lastChild.remove();
    while (this.heads.childElementCount - 1 < longest) {
      this.heads.append(
        make("span", { class: "index", role: "columnheader" }, String(this.heads.childElementCount - 1)),
      );
    }
    this.grid.style.minWidth = `${TABLE_HEAD + 42 * longest}px`;
    seqs.forEach((seq, i) => {
      this.rows[i].seq = seq;
    });
    const entries = seqs.reduce((sum, seq) => sum + seq.table.length, 0);
    setText(this.aside, `${plural(seqs.length, "sequence")}, ${plural(entries, "entry", "entries")}`);
    this.grid.classList.toggle("none", !seqs.length);
    this.fill();
  }

  fill() {
    if (!this.state) return;
    const first = this.view.all ? 0 : Math.floor(this.top / TABLE_ROW) - 1;
    const last = this.view.all ? this.rows.length : first + Math.ceil(TABLE_HEIGHT / TABLE_ROW) + 2;
    this.rows.forEach((row, i) => {
      if (i >= first && i <= last) this.fillRow(row);
    });
    this.highlight();
  }

  fillRow(row) {
    const { seq, cells } = row;
    const names = this.view.run.names.get(seq.seqId);
    if (row.seqId !== seq.seqId) {
      row.seqId = seq.seqId;
      row.row.className = `row c${names.colour}`;
      row.head.replaceChildren(chip(names), " ", foreign(names.name, { title: names.name }));
    }
    while (cells.length > seq.table.length) cells.pop().remove();
    const { state } = this;
    const size = state.engine.block_size;
    seq.table.forEach((blockId, index) => {
      let cell = cells[index];
      if (!cell) {
        cell = make("span", { class: "entry", role: "gridcell", "data-index": index });
        cells.push(cell);
        row.row.append(cell);
      }
      const filled = state.filled(seq, index);
      const isShared = state.refCnt[blockId] > 1;
      const mark = state.changes.has(blockId) ? (markOf(state.changes.get(blockId)) ?? "") : "";
      const key = `${seq.seqId} ${blockId} ${filled} ${isShared} ${mark}`;
      if (cell.shows === key) return;
      cell.shows = key;
      cell.dataset.block = blockId;
      cell.dataset.seq = seq.seqId;
      cell.className = `entry${isShared ? " shared" : ""}${mark ? ` ${mark}` : ""}`;
      cell.style.setProperty("--fill", `${(100 * filled) / size}%`);
      setText(cell, String(blockId));
      cell.setAttribute(
        "aria-label",
        `logical block ${index} is block ${blockId}, ${filled} of ${size} slots filled${isShared ? ", shared" : ""}`,
      );
    });
  }

  highlight() {
    const { hovered, selected, token } = this.view;
    for (const element of this.grid.querySelectorAll(".hovered, .chosen, .of-token"))
      element.classList.remove("hovered", "chosen", "of-token");
    const add = (blockId, name) => {
      if (blockId === null || blockId === undefined) return;
      for (const element of this.grid.querySelectorAll(`[data-block="${blockId}"]`))
        element.classList.add(name);
    };
    add(hovered, "hovered");
    add(selected, "chosen");
    if (token) {
      this.grid
        .querySelector(`[data-seq="${token.seqId}"][data-index="${token.index}"]`)
        ?.classList.add("of-token");
    }
    const blockId = hovered ?? selected;
    const entry = this.entry?.blockId === blockId ? this.entry : null;
    if (blockId === null || blockId === undefined)
      setText(
        this.readout,
        this.rows.length
          ? "Each cell has the physical block; its column is the logical one."
          : "No sequence holds blocks.",
      );
    else if (entry) {
      const name = this.view.run.names.get(entry.seqId).name;
      setText(this.readout, `${isolate(name)}: logical block ${entry.index} → physical block ${blockId}`);
    } else
      setText(
        this.readout,
        `physical block ${blockId} ← ${this.view.heldBy(this.holders.get(blockId) ?? []) || "no block table"}`,
      );
    this.grid.removeAttribute("aria-activedescendant");
    if (this.active) {
      const cell = this.grid.querySelector(
        `[data-seq="${this.active.seqId}"][data-index="${this.active.index}"]`,
      );
      if (cell) {
        cell.id ||= this.view.id(`entry-${this.active.seqId}-${this.active.index}`);
        this.grid.setAttribute("aria-activedescendant", cell.id);
      }
    }
  }
}

function entryOf(element) {
  const cell = element.closest?.(".entry");
  if (!cell) return null;
  return {
    seqId: Number(cell.dataset.seq),
    index: Number(cell.dataset.index),
    blockId: Number(cell.dataset.block),
  };
}
