// Charts over the whole run. Each is drawn once; a step only moves the cursors and changes the numbers.

const CHART_HEIGHT = 112;

class Charts {
  constructor(view) {
    this.view = view;
    this.charts = CHARTS.filter((chart) => view.runs.some((run) => chart.fits(run.engine))).map((chart) =>
      this.add(chart),
    );
    const { section, aside } = panel(
      "Over the run",
      "charts",
      make("div", { class: "chart-grid" }, ...this.charts.map((each) => each.figure)),
    );
    this.section = section;
    this.aside = aside;
  }

  add(chart) {
    const canvas = make("canvas", { role: "img", "aria-label": chart.title });
    const cursor = make("div", { class: "cursor" });
    const values = chart.lines.map((line) => ({ line, text: make("b") }));
    const caption = make(
      "figcaption",
      {},
      make("span", { class: "title" }, chart.title),
      make(
        "span",
        { class: "values" },
        ...values.map(({ line, text }) =>
          make(
            "span",
            { class: "value" },
            make("span", { class: `key ${line.key}`, "aria-hidden": "true" }),
            `${line.name} `,
            text,
          ),
        ),
      ),
    );
    const plot = make("div", { class: "plot" }, canvas, cursor);
    const seek = (event) => {
      const box = canvas.getBoundingClientRect();
      this.view.goTo(this.view.axis.step(this.view.run, (event.clientX - box.left) / box.width));
    };
    plot.addEventListener("pointerdown", seek);
    plot.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) seek(event);
    });
    return {
      chart,
      canvas,
      cursor,
      values,
      plot,
      figure: make("figure", { "data-chart": chart.name }, caption, plot),
    };
  }

  measure() {
    this.width = this.charts[0].plot.clientWidth;
    if (this.width) for (const each of this.charts) this.paint(each, this.width);
  }

  draw({ number }) {
    const { width } = this;
    const { run, axis } = this.view;
    const at = axis.at(run, number) * width;
    for (const { cursor, values } of this.charts) {
      cursor.style.transform = `translateX(${at.toFixed(1)}px)`;
      for (const { line, text } of values) setText(text, line.show(line.of(run.curves)[number], run));
    }
  }

  /** The highest value of a chart in all runs of the page, so that two runs have one scale. */
  top(chart) {
    const of = (run) => {
      const columns = chart.lines.map((line) => line.of(run.curves));
      let most = chart.most ? chart.most(run) : 0;
      for (let i = 0; i <= run.numSteps; i += 1) {
        const each = columns.map((column) => column[i]);
        most = Math.max(most, chart.stacked ? each.reduce((a, b) => a + b, 0) : Math.max(...each));
      }
      return most;
    };
    return Math.max(1e-9, ...this.view.runs.map(of));
  }

  paint({ chart, canvas }, width) {
    const { run, axis, colours } = this.view;
    const top = this.top(chart);
    const context = sized(canvas, width, CHART_HEIGHT);
    const y = (value) => CHART_HEIGHT - 1 - (value / top) * (CHART_HEIGHT - 16);
    context.font = `10px ${colours.font}`;
    context.fillStyle = colours.line;
    for (const value of [0, top / 2, top]) context.fillRect(0, Math.round(y(value)), width, 1);
    const columns = chart.lines.map((line) => line.of(run.curves));
    if (chart.stacked) this.areas(context, columns, width, y);
    else chart.lines.forEach((line, i) => this.curve(context, columns[i], width, y, line));
    context.fillStyle = colours.muted;
    context.textBaseline = "bottom";
    context.textAlign = "left";
    context.fillText(chart.lines[0].show(top, run), 2, y(top) - 1);
    context.textAlign = "right";
    context.fillText(axis.label(axis.end) + (axis.inTime ? "" : " steps"), width - 2, y(top) - 1);
    const last = chart.lines.map((line, i) => `${line.name} ${line.show(columns[i][run.numSteps], run)}`);
    canvas.setAttribute(
      "aria-label",
      `${chart.title} over ${plural(run.numSteps, "step")}: at the end ${last.join(", ")}`,
    );
  }

  /** Calls `visit(x, step)` along the axis; a step's value holds from its end to the end of the next step. */
  along(width, visit) {
    const { run, axis } = this.view;
    for (let step = 0; step <= run.numSteps; step += 1) visit(axis.at(run, step) * width, step);
  }

  curve(context, column, width, y, line) {
    const { colours } = this.view;
    context.strokeStyle = lineColour(line.key, colours);
    context.lineWidth = 1.75;
    context.setLineDash(LINE_DASHES[line.key] ?? []);
    context.beginPath();
    let before = 0;
    this.along(width, (x, step) => {
      if (step) context.lineTo(x, y(before));
      context.lineTo(x, y(column[step]));
      before = column[step];
    });
    context.stroke();
    context.setLineDash([]);
  }

  areas(context, columns, width, y) {
    const { colours, run } = this.view;
    const base = new Float64Array(run.numSteps + 1);
    columns.forEach((column, kind) => {
      const points = [];
      let before = null;
      this.along(width, (x, step) => {
        const low = base[step],
          high = low + column[step];
        if (before) points.push([x, before[1], before[2]]);
        points.push([x, low, high]);
        before = [x, low, high];
        base[step] = high;
      });
      context.fillStyle = colours.kinds[kind];
      context.beginPath();
      for (const [x, , high] of points) context.lineTo(x, y(high));
      for (const [x, low] of points.reverse()) context.lineTo(x, y(low));
      context.fill();
    });
  }
}

const LINE_DASHES = { waiting: [5, 3], swapped: [1.5, 3], cached: [5, 3] };

function lineColour(key, colours) {
  return (
    { waiting: colours.muted, swapped: colours.swap, cached: colours.muted, preemptions: colours.alarm }[
      key
    ] ?? colours.accent
  );
}

const pick = (name) => (curves) => curves[name];
const number = (value) => whole.format(Math.round(value));
const CHARTS = [
  {
    name: "pool",
    title: "Pool usage",
    fits: (engine) => engine.kv_layout !== "none",
    most: () => 1,
    lines: [
      { name: "used", key: "used", of: pick("used"), show: percent },
      { name: "cached, free", key: "cached", of: pick("cached"), show: percent },
    ],
  },
  {
    name: "waste",
    title: "Slots, by use",
    stacked: true,
    fits: (engine) => engine.kv_layout !== "none",
    lines: KINDS.map(([kind, name]) => ({ name, key: `kind-${kind}`, of: pick(kind), show: number })),
  },
  {
    name: "requests",
    title: "Requests",
    fits: () => true,
    lines: ["running", "waiting", "swapped"].map((name) => ({
      name,
      key: name,
      of: pick(name),
      show: number,
    })),
  },
  {
    name: "scheduled",
    title: "Tokens in a step",
    fits: () => true,
    lines: [{ name: "scheduled", key: "used", of: pick("scheduled"), show: number }],
  },
  {
    name: "hits",
    title: "Prefix hits so far",
    fits: (engine) => engine.enable_prefix_caching,
    lines: [{ name: "tokens", key: "used", of: pick("hits"), show: number }],
  },
  {
    name: "preemptions",
    title: "Preemptions so far",
    fits: () => true,
    lines: [{ name: "preemptions", key: "preemptions", of: pick("preemptions"), show: number }],
  },
];
