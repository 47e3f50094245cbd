// The texts as they grow. Prompts that begin alike have their common beginning in one colour, with a letter; what
// came from the prefix cache is underlined. A click on a token shows its slot.

const LONG = 4000, MOST_TEXTS = 60;

class Texts {
  constructor(view) {
    this.view = view;
    this.items = new Map(); // key -> the elements of a request
    this.groups = commonPrefixes(view.run);
    this.list = make("div", { class: "texts" });
    this.more = make("p", { class: "hint" });
    const { section, aside } = panel("Texts", "texts-panel", this.list, this.more);
    this.section = section;
    this.aside = aside;
    this.list.addEventListener("click", (event) => {
      const token = event.target.closest?.(".token");
      if (token) view.chooseToken(Number(token.closest(".text").dataset.seq), Number(token.dataset.position));
    });
  }

  draw({ state }) {
    const arrived = [...state.requests.values()];
    setText(this.aside, this.view.run.hasTexts ? "" : "this trace leaves texts out: token ids");
    for (const [key, item] of this.items) {
      if (!state.requests.has(key)) {
        item.element.remove();
        this.items.delete(key);
      }
    }
    const shown = arrived.slice(0, MOST_TEXTS);
    setText(this.more, arrived.length > shown.length ? `and ${arrived.length - shown.length} more requests` : arrived.length ? "" : "No request has arrived.");
    for (const request of shown) {
      if (!this.items.has(request.key)) this.items.set(request.key, this.add(request));
      this.update(this.items.get(request.key), request, state);
    }
  }

  add(request) {
    const { run } = this.view;
    const first = request.key;
    const status = make("span", { class: "status" });
    const prompt = make("span", { class: "prompt" });
    const outputs = make("div", { class: "outputs" });
    const element = make("article", { class: "text", "data-seq": first },
      make("h3", {}, chip(run.names.get(first)), " ", foreign(request.requestId), " ", status), make("div", { class: "body", dir: "auto" }, prompt), outputs);
    this.list.append(element);
    const { numPrompt } = this.view.run.names.get(first);
    prompt.append(...this.promptParts(first, run.tokens(first, 0, numPrompt), numPrompt));
    return { element, status, prompt, outputs, samples: new Map(), hits: 0 };
  }

  promptParts(seqId, tokens, length) {
    const parts = [];
    const groups = this.groups.get(seqId) ?? [];
    let at = 0;
    for (const { end, mark, count } of [...groups, { end: length, mark: null }]) {
      if (end <= at) continue;
      const span = make("span", mark ? { class: `shared-text g${mark.number % 6}`, title: `the same in ${count} prompts` } : { class: "own" });
      if (mark) span.append(make("span", { class: "group", "aria-hidden": "true" }, mark.letter));
      this.fillTokens(span, seqId, tokens, at, end);
      parts.push(span);
      at = end;
    }
    return parts;
  }

  /** Short texts have an element for each token, so that a token can be chosen; long ones are cut in the middle. */
  fillTokens(span, seqId, tokens, from, to) {
    const { run } = this.view;
    const say = (position) => run.tokenText(seqId, position) || `${run.hasTexts ? "" : `${tokens[position]} `}`;
    const put = (first, last) => {
      for (let position = first; position < last; position += 1) {
        span.append(make("span", { class: "token", "data-position": position }, shorten(say(position))));
      }
    };
    const most = LONG / 4;
    if (to - from <= most) put(from, to);
    else {
      put(from, from + most / 2);
      const button = make("button", { type: "button", class: "link", onclick: () => {
        let text = "";
        for (let position = from + most / 2; position < to - most / 2; position += 1) text += say(position);
        button.replaceWith(document.createTextNode(text));
      } }, ` … ${whole.format(to - from - most)} tokens more … `);
      span.append(button);
      put(to - most / 2, to);
    }
  }

  update(item, request, state) {
    const hits = request.numCached ?? 0;
    if (item.hits !== hits) {
      item.hits = hits;
      for (const token of item.prompt.querySelectorAll(".token")) token.classList.toggle("hit", Number(token.dataset.position) < hits);
    }
    const remarks = [request.status];
    if (hits) remarks.push(`${plural(hits, "prompt token")} from the cache`);
    if (request.numPreemptions) remarks.push(`preempted ${request.numPreemptions} ×`);
    setText(item.status, remarks.join(", "));
    item.element.classList.toggle("over", OVER.includes(request.status));
    const seqs = state.sequencesOf(request);
    for (const [seqId, sample] of item.samples) {
      if (!request.seqIds.includes(seqId)) {
        sample.element.remove();
        item.samples.delete(seqId);
      }
    }
    for (const seq of seqs) {
      let sample = item.samples.get(seq.seqId);
      if (!sample) {
        const text = make("span", { class: "output", dir: "auto" });
        const element = make("div", { class: "sample" }, seqs.length > 1 || request.numSeqs > 1 ? chip(this.view.run.names.get(seq.seqId)) : null, text, make("span", { class: "end" }));
        item.outputs.append(element);
        sample = { element, text, end: element.lastChild };
        item.samples.set(seq.seqId, sample);
      }
      setText(sample.text, outputText(this.view.run, seq));
      setText(sample.end, seq.finishReason ? ` ■ ${seq.finishReason}` : "");
    }
  }
}

function outputText(run, seq) {
  const { tokens, texts } = run.log.get(seq.seqId);
  let text = "";
  for (let position = seq.numPrompt; position < seq.numTokens; position += 1) {
    text += run.hasTexts && texts[position] !== "" ? texts[position] : "";
  }
  if (!text) text = tokens.slice(seq.numPrompt, seq.numTokens).join(" ");
  return text.length > LONG * 4 ? `${text.slice(0, LONG)} … ${whole.format(text.length - 2 * LONG)} characters … ${text.slice(-LONG)}` : text;
}

/** One token can be as long as its author likes. */
function shorten(text) {
  return text.length > LONG ? `${text.slice(0, LONG)}… (${whole.format(text.length - LONG)} characters more)` : text;
}

/** Sequence id -> [{end, mark, count}]: where its prompt is the same as that of others, in whole blocks. */
function commonPrefixes(run) {
  const size = run.engine.block_size;
  const prompts = [];
  for (const step of run.trace.steps) {
    for (const event of step.events) if (event.event === "RequestAdded") prompts.push([event.seq_id, event.prompt_token_ids, event.cache_salt]);
  }
  const numbers = new Map(); // a block and the number of all before it -> a number of both
  const sharers = []; // by that number: the sequences that begin so
  const chains = prompts.map(([seqId, tokens, salt]) => {
    const chain = [];
    let before = `salt ${salt ?? ""}`;
    for (let at = 0; at + size <= tokens.length; at += size) {
      const key = `${before}: ${tokens.slice(at, at + size).join()}`;
      if (!numbers.has(key)) numbers.set(key, sharers.push([]) - 1);
      before = numbers.get(key);
      sharers[before].push(seqId);
      chain.push(before);
    }
    return [seqId, chain];
  });
  const marks = new Map();
  return new Map(chains.map(([seqId, chain]) => {
    const found = [];
    chain.forEach((number, block) => {
      const all = sharers[number];
      if (all.length < 2) return;
      const name = all.join();
      if (!marks.has(name)) marks.set(name, { number: marks.size, letter: String.fromCharCode(0x3b1 + (marks.size % 17)) });
      const last = found[found.length - 1];
      if (last && last.mark === marks.get(name)) last.end = (block + 1) * size;
      else found.push({ end: (block + 1) * size, mark: marks.get(name), count: all.length });
    });
    return [seqId, found];
  }));
}
