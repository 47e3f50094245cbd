// The timeline: a row for each request, which shows from left to right what it did. The phases differ in height and
// line style, so that they can be told apart without colours. The canvas is as large as the visible part of the rows,
// and is drawn again when the rows are scrolled.

const ROW = 20,
  NAMES = 132,
  RULER = 20;
const ZOOMS = [1, 2, 4, 8, 16, 32];

class Timeline {
  constructor(view) {
    this.view = view;
    this.zoom = 0;
    this.left = this.top = 0;
    this.canvas = make("canvas", { role: "img" });
    this.sizer = make("div", { class: "sizer" });
    this.scroll = make(
      "div",
      {
        class: "scroll gantt",
        tabindex: 0,
        role: "region",
        "aria-label": "Timeline of the requests; arrow keys scroll it",
      },
      this.sizer,
      this.canvas,
    );
    const zoom = (by, name, text) =>
      make(
        "button",
        { type: "button", "aria-label": name, title: name, onclick: () => this.setZoom(by) },
        text,
      );
    const item = (name, text) =>
      make("li", {}, make("span", { class: `span ${name}`, "aria-hidden": "true" }), text);
    const legend = make(
      "ul",
      { class: "legend", "aria-label": "Key to the timeline" },
      item("waiting", "waiting"),
      item("prefill", "prefill chunk"),
      item("decode", "decode"),
      item("preempted", "preempted"),
      item("swapped", "swapped out"),
      item("idle", "running, not scheduled"),
    );
    const { section, aside } = panel(
      "Timeline",
      "timeline",
      this.scroll,
      make(
        "div",
        { class: "under" },
        legend,
        make("span", { class: "zoom" }, zoom(-1, "Zoom out", "−"), zoom(1, "Zoom in", "+")),
      ),
    );
    this.section = section;
    this.aside = aside;
    this.scroll.addEventListener("scroll", () => {
      this.left = this.scroll.scrollLeft;
      this.top = this.scroll.scrollTop;
      this.paint();
    });
    this.canvas.addEventListener("click", (event) => this.seek(event));
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) this.seek(event);
    });
  }

  setZoom(by) {
    this.zoom = Math.min(ZOOMS.length - 1, Math.max(0, this.zoom + by));
    this.size();
    this.follow(this.view.shared.state);
    this.paint();
  }

  measure() {
    this.width = this.scroll.clientWidth;
    this.rows = [...this.view.run.rows.values()];
    this.height = Math.min(this.rows.length * ROW + RULER + 4, this.view.all ? 4000 : 300);
    this.size();
  }

  size() {
    this.scroll.style.height = `${this.height + 14}px`;
    this.sizer.style.width = `${this.wide + NAMES + 12}px`;
    this.sizer.style.height = `${this.rows.length * ROW + RULER + 4}px`;
  }

  /** The width of the whole axis, in pixels. */
  get wide() {
    const room = Math.max(200, this.width - NAMES - 12);
    const fitting = this.view.axis.inTime ? 0 : 3 * this.view.axis.end;
    return Math.max(room, fitting) * ZOOMS[this.zoom];
  }

  seek(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left - NAMES + this.left;
    if (x < 0) return;
    const { axis, run } = this.view;
    this.view.goTo(axis.inTime ? axis.step(run, x / this.wide) : Math.ceil((x / this.wide) * axis.end));
  }

  draw({ number, state }) {
    this.number = number;
    const shown = state.requests.size;
    setText(this.aside, `${whole.format(shown)} of ${plural(this.rows.length, "request")} arrived`);
    this.canvas.setAttribute("aria-label", this.describe(state));
    this.follow(state);
    this.paint();
  }

  describe(state) {
    const counts = {};
    for (const request of state.requests.values()) counts[request.status] = (counts[request.status] ?? 0) + 1;
    const parts = Object.entries(counts).map(([status, count]) => `${count} ${status}`);
    return `Timeline. After step ${this.number}: ${parts.join(", ") || "no requests"}.`;
  }

  /** Scrolls until the current step is in sight, and with it a request that runs in that step. */
  follow(state) {
    const x = this.view.axis.at(this.view.run, this.number ?? 0) * this.wide;
    const room = this.width - NAMES - 12;
    if (x < this.left || x > this.left + room) this.scroll.scrollLeft = this.left = Math.max(0, x - room / 2);
    const running = new Set(state.running);
    const first = this.rows.findIndex((row) => running.has(row.key));
    const last = this.rows.findLastIndex((row) => running.has(row.key));
    const isInSight = last * ROW >= this.top && (first + 2) * ROW <= this.top + this.height;
    if (first >= 0 && !isInSight) this.scroll.scrollTop = this.top = Math.max(0, (first - 1) * ROW);
  }

  paint() {
    const { rows, wide, width, height, left: scrollLeft, top: scrollTop } = this;
    const { run, axis, colours } = this.view;
    if (!width) return;
    const context = sized(this.canvas, width, height);
    const x = (share) => NAMES + share * wide - scrollLeft;
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(NAMES, 0, width - NAMES, height);
    context.clip();
    this.ruler(context, x, width, height);
    const first = Math.max(0, Math.floor(scrollTop / ROW) - 1);
    const last = Math.min(rows.length, first + Math.ceil(height / ROW) + 2);
    for (let i = first; i < last; i += 1) {
      const y = RULER + i * ROW - scrollTop;
      const colour = PALETTE[run.names.get(rows[i].key).colour];
      for (const span of rows[i].spans) {
        const from = x(axis.at(run, Math.max(0, span.from - 1))),
          to = x(axis.at(run, span.to));
        if (to >= NAMES && from <= width)
          paintSpan(
            context,
            span.kind,
            Math.max(from, NAMES - 40),
            y,
            Math.min(to, width + 40),
            colour,
            colours,
          );
      }
    }
    const now = x(axis.at(run, this.number ?? 0));
    context.fillStyle = colours.panel;
    context.fillRect(NAMES, 0, width, RULER - 3);
    this.numbers(context, x, width);
    context.fillStyle = colours.accent;
    context.fillRect(Math.round(now) - 1, 0, 2, height);
    context.restore();
    for (let i = first; i < last; i += 1) this.name(context, rows[i], RULER + i * ROW - scrollTop + ROW / 2);
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, NAMES - 2, RULER - 3);
    context.fillStyle = colours.muted;
    context.textAlign = "left";
    context.fillText(axis.inTime ? "time" : "step", 2, RULER / 2 - 2);
  }

  ruler(context, x, width, height) {
    const { axis, colours } = this.view;
    context.fillStyle = colours.line;
    for (const tick of ticks(axis.end, this.wide / 70)) {
      const at = Math.round(x(tick / axis.end));
      if (at >= NAMES && at <= width) context.fillRect(at, RULER - 3, 1, height);
    }
  }

  numbers(context, x, width) {
    const { axis, colours } = this.view;
    context.fillStyle = colours.muted;
    context.textAlign = "left";
    for (const tick of ticks(axis.end, this.wide / 70)) {
      const at = x(tick / axis.end);
      if (at > NAMES - 60 && at < width) context.fillText(axis.label(tick), at + 3, RULER / 2 - 2);
    }
  }

  name(context, row, y) {
    const names = this.view.run.names.get(row.key);
    const { colours } = this.view;
    context.fillStyle = PALETTE[names.colour];
    context.fillRect(2, y - 7, 14, 14);
    context.fillStyle = inkOn[names.colour];
    context.textAlign = "center";
    context.fillText(names.letter, 9, y + 0.5);
    context.fillStyle = colours.ink;
    context.textAlign = "left";
    context.fillText(cut(plainly(row.requestId), 17), 22, y + 0.5);
  }
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function paintSpan(context, kind, from, y, to, colour, colours) {
  const wide = Math.max(1, to - from);
  const middle = y + ROW / 2;
  const lines = {
    waiting: [colours.muted, 1.5, []],
    preempted: [colours.alarm, 3, [5, 3]],
    swapped: [colours.swap, 3, [1.5, 3]],
    idle: [colour, 2, []],
  };
  if (kind in lines) {
    const [stroke, thick, dashes] = lines[kind];
    context.strokeStyle = stroke;
    context.lineWidth = thick;
    context.setLineDash(dashes);
    context.beginPath();
    context.moveTo(from, middle);
    context.lineTo(from + wide, middle);
    context.stroke();
    context.setLineDash([]);
    return;
  }
  const high = kind === "prefill" ? ROW - 4 : 8;
  context.fillStyle = colour;
  context.fillRect(from, middle - high / 2, wide, high);
  if (kind === "prefill") {
    context.fillStyle = colours.ink;
    context.fillRect(from, middle - high / 2, wide, 2);
  }
}
