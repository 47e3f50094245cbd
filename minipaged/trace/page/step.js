// One step: how its token budget was used, the queues after it, and its events in words.

const MOST_EVENTS = 60,
  MOST_CHIPS = 40;

class Step {
  constructor(view) {
    this.view = view;
    this.budget = make("div", { class: "budget", role: "img" });
    this.chunks = make("div", { class: "chunks" });
    this.moreChunks = make("p", { class: "more" });
    this.queues = Object.fromEntries(
      ["running", "waiting", "swapped"].map((name) => [
        name,
        {
          count: make("span", { class: "count" }),
          more: make("p", { class: "more" }),
          list: make("ol", { class: "queue", "aria-label": `${name} requests` }),
        },
      ]),
    );
    this.events = make("ol", { class: "events", "aria-label": "Events of this step" });
    const rows = Object.entries(this.queues).map(([name, { count, list, more }]) =>
      make("div", { class: "queue-row" }, make("h3", {}, name, " ", count), make("div", {}, list, more)),
    );
    const { section, aside } = panel(
      "This step",
      "step",
      this.budget,
      this.chunks,
      this.moreChunks,
      ...rows,
      make("h3", {}, "Events"),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events" }, this.events),
    );
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
    this.drawQueue(
      state,
      "running",
      state.running.map((key) => state.requests.get(key)),
      numTokens,
    );
    this.drawQueue(state, "waiting", state.waiting, numTokens);
    this.drawQueue(state, "swapped", state.swapped, numTokens);
    this.drawEvents(number);
  }

  drawBudget(state, number) {
    const limit = state.engine.max_num_batched_tokens;
    const used = state.chunks.reduce((sum, chunk) => sum + chunk.numTokens, 0);
    const { isPast } = this.view;
    setText(
      this.aside,
      number === 0
        ? "before the first step"
        : isPast
          ? "the run has ended"
          : `${whole.format(used)} of ${plural(limit, "token")} scheduled`,
    );
    const { run } = this.view;
    this.budget.setAttribute("aria-label", `token budget: ${used} of ${limit} used`);
    fillList(
      this.budget,
      state.chunks,
      () => make("span"),
      (bar, { seqId, numTokens }) => {
        const names = run.names.get(seqId);
        bar.className = `c${names.colour}`;
        bar.title = `${isolate(names.name)}: ${plural(numTokens, "token")}`;
        bar.style.width = `${(100 * numTokens) / limit}%`;
      },
    );
    const shown = state.chunks.slice(0, MOST_CHIPS);
    const create = () =>
      make("span", { class: "chunk" }, make("span", { "aria-hidden": "true" }), make("span"), make("small"));
    fillList(this.chunks, shown, create, (element, { seqId, start, numTokens }) => {
      const [sign, count, where] = element.children;
      setChip(sign, run.names.get(seqId));
      setText(count, ` ${whole.format(numTokens)}`);
      setText(where, numTokens === 1 ? ` at ${start}` : ` at ${start}–${start + numTokens - 1}`);
    });
    setText(
      this.moreChunks,
      state.chunks.length > shown.length ? `and ${state.chunks.length - shown.length} more` : "",
    );
  }

  drawQueue(state, name, requests, numTokens) {
    const { count, list, more } = this.queues[name];
    setText(count, whole.format(requests.length));
    const { run } = this.view;
    const shown = requests.slice(0, MOST_CHIPS);
    const create = () =>
      make("li", {}, make("span", { "aria-hidden": "true" }), " ", make("bdi"), make("small"));
    fillList(list, shown, create, (element, request) => {
      const [sign, id, remark] = element.children;
      const tokens = numTokens.get(request.key);
      const numOnCpu = new Set(state.sequencesOf(request).flatMap((seq) => seq.cpu)).size;
      element.className = request.status;
      setChip(sign, run.names.get(request.key));
      setText(id, plainly(request.requestId));
      id.title = plainly(request.requestId);
      if (name === "swapped") setText(remark, ` ${plural(numOnCpu, "CPU block")}`);
      else setText(remark, request.status === "preempted" ? " preempted" : tokens ? ` +${tokens}` : "");
    });
    setText(
      more,
      requests.length > shown.length
        ? `and ${requests.length - shown.length} more`
        : requests.length
          ? ""
          : "none",
    );
  }

  drawEvents(number) {
    const { run } = this.view;
    const { events } = run.trace.steps[number];
    const told = events.filter((event) => !["StepExecuted", "StepFinished"].includes(event.event));
    const items = told
      .slice(0, MOST_EVENTS)
      .map((event) => make("li", { "data-event": event.event }, ...words(event, run)));
    if (told.length > items.length)
      items.push(
        make("li", { class: "more" }, `and ${whole.format(told.length - items.length)} more events`),
      );
    this.events.replaceChildren(...items);
  }
}
