// One step: how its token budget was used, the queues after it, and its events in words.

const MOST_EVENTS = 60, MOST_CHIPS = 80;

class Step {
  constructor(view) {
    this.view = view;
    this.budget = make("div", { class: "budget", role: "img" });
    this.chunks = make("p", { class: "chunks" });
    this.queues = Object.fromEntries(["running", "waiting", "swapped"].map((name) => [name, {
      count: make("span", { class: "count" }), list: make("ol", { class: "queue", "aria-label": `${name} requests` }),
    }]));
    this.events = make("ol", { class: "events", "aria-label": "Events of this step" });
    const rows = Object.entries(this.queues).map(([name, { count, list }]) => make("div", { class: "queue-row" },
      make("h3", {}, name, " ", count), list));
    const { section, aside } = panel("This step", "step", this.budget, this.chunks, ...rows,
      make("h3", {}, "Events"), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events" }, this.events));
    this.section = section;
    this.aside = aside;
  }

  draw({ state, number }) {
    this.drawBudget(state, number);
    const numTokens = new Map();
    for (const { seqId, numTokens: n } of state.chunks) {
      const { request } = this.view.run.names.get(seqId);
      numTokens.set(request, (numTokens.get(request) ?? 0) + n);
    }
    this.drawQueue("running", state.running.map((key) => state.requests.get(key)), numTokens);
    this.drawQueue("waiting", state.waiting, numTokens);
    this.drawQueue("swapped", state.swapped, numTokens);
    this.drawEvents(number);
  }

  drawBudget(state, number) {
    const limit = state.engine.max_num_batched_tokens;
    const used = state.chunks.reduce((sum, chunk) => sum + chunk.numTokens, 0);
    setText(this.aside, number === 0 ? "before the first step" : `${whole.format(used)} of ${plural(limit, "token")} scheduled`);
    const { run } = this.view;
    this.budget.setAttribute("aria-label", `token budget: ${used} of ${limit} used`);
    this.budget.replaceChildren(...state.chunks.map(({ seqId, numTokens }) => {
      const bar = make("span", { class: `c${run.names.get(seqId).colour}`, title: `${isolate(run.names.get(seqId).name)}: ${plural(numTokens, "token")}` });
      bar.style.width = `${(100 * numTokens) / limit}%`;
      return bar;
    }));
    const shown = state.chunks.slice(0, MOST_CHIPS).map(({ seqId, start, numTokens }) => {
      const end = start + numTokens - 1;
      return make("span", { class: "chunk" }, chip(run.names.get(seqId)), ` ${whole.format(numTokens)}`,
        make("small", {}, numTokens === 1 ? ` at ${start}` : ` at ${start}–${end}`));
    });
    const more = state.chunks.length - shown.length;
    this.chunks.replaceChildren(...shown, more > 0 ? `and ${more} more` : "");
  }

  drawQueue(name, requests, numTokens) {
    const { count, list } = this.queues[name];
    setText(count, whole.format(requests.length));
    const { run } = this.view;
    const items = requests.slice(0, MOST_CHIPS).map((request) => {
      const names = run.names.get(request.key);
      const tokens = numTokens.get(request.key);
      const remark = name === "waiting" && request.status === "preempted" ? "preempted" : tokens ? `+${tokens}` : "";
      return make("li", { class: request.status }, chip(names), " ", foreign(request.requestId, { title: plainly(request.requestId) }), remark ? make("small", {}, ` ${remark}`) : null);
    });
    if (requests.length > items.length) items.push(make("li", { class: "more" }, `and ${requests.length - items.length} more`));
    list.replaceChildren(...(items.length ? items : [make("li", { class: "none" }, "none")]));
  }

  drawEvents(number) {
    const { run } = this.view;
    const { events } = run.trace.steps[number];
    const told = events.filter((event) => !["StepExecuted", "StepFinished"].includes(event.event));
    const items = told.slice(0, MOST_EVENTS).map((event) => make("li", { "data-event": event.event }, ...words(event, run)));
    if (told.length > items.length) items.push(make("li", { class: "more" }, `and ${whole.format(told.length - items.length)} more events`));
    this.events.replaceChildren(...items);
  }
}
