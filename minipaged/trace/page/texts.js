// The texts as they grow. If prompts begin alike, their common beginning has one colour and a letter. Tokens from the
// prefix cache are underlined. A click on a token shows its slot.

const LONG = 4000,
  MOST_TEXTS = 40;

class Texts {
  constructor(view) {
    this.view = view;
    this.items = new Map(); // key -> the elements of a request
    this.groups = commonPrefixes(view.run);
    // If there are many texts, the browser lays out only those in sight.
    this.list = make("div", { class: view.run.rows.size > 12 ? "texts many" : "texts" });
    this.more = make("p", { class: "hint" });
    const { section, aside } = panel("Texts", "texts-panel", this.list, this.more);
    this.section = section;
    this.aside = aside;
    this.list.addEventListener("click", (event) => {
      const token = this.tokenAt(event);
      if (token) view.chooseToken(token.seqId, token.position);
    });
  }

  draw({ state }) {
    const arrived = [...state.requests.values()];
    setText(this.aside, this.view.run.hasTexts ? "" : "this trace leaves texts out: token ids");
    const shown = this.chosen(arrived);
    setText(
      this.more,
      arrived.length > shown.length
        ? `${plural(arrived.length - shown.length, "more request")} not shown`
        : arrived.length
          ? ""
          : "No request has arrived.",
    );
    const keys = new Set(shown.map((request) => request.key));
    for (const [key, item] of this.items) {
      if (!keys.has(key)) {
        item.element.remove();
        this.items.delete(key);
      }
    }
    for (const request of shown) {
      if (!this.items.has(request.key)) this.items.set(request.key, this.add(request));
      this.update(this.items.get(request.key), request, state);
    }
  }

  /** The requests to show: those that are not over, then the latest ones that are. In the order of arrival. */
  chosen(arrived) {
    if (arrived.length <= MOST_TEXTS) return arrived;
    const going = arrived.filter((request) => !OVER.includes(request.status)).slice(0, MOST_TEXTS);
    const over = arrived.filter((request) => OVER.includes(request.status));
    const room = MOST_TEXTS - going.length;
    return [...(room ? over.slice(-room) : []), ...going].sort((a, b) => a.key - b.key);
  }

  add(request) {
    const { run } = this.view;
    const first = request.key;
    const status = make("span", { class: "status" });
    const prompt = make("span", { class: "prompt" });
    // A single output continues where the prompt ends. Several outputs have separate lines.
    const outputs = make(request.numSeqs > 1 ? "div" : "span", { class: "outputs" });
    const body = make("div", { class: "body", dir: "auto" }, prompt);
    const element = make(
      "article",
      { class: "text", "data-seq": first },
      make("h3", {}, chip(run.names.get(first)), " ", foreign(request.requestId), " ", status),
      body,
    );
    if (request.numSeqs > 1) element.append(outputs);
    else body.append(outputs);
    const after = [...this.list.children].find((each) => Number(each.dataset.seq) > first) ?? null;
    this.list.insertBefore(element, after);
    const { numPrompt } = this.view.run.names.get(first);
    return { element, status, prompt, outputs, samples: new Map(), hits: null };
  }

  /** Fills in the prompt in parts. A part ends where other prompts differ, or where the cached tokens end. */
  fillPrompt(prompt, seqId, hits) {
    const { numPrompt } = this.view.run.names.get(seqId);
    const groups = [...(this.groups.get(seqId) ?? []), { end: numPrompt, mark: null }];
    prompt.replaceChildren();
    let at = 0;
    for (const { end, mark, count } of groups) {
      if (end <= at) continue;
      const part = make(
        "span",
        mark ? { class: `shared-text g${mark.number % 6}`, title: `the same in ${count} prompts` } : {},
      );
      if (mark) part.append(make("span", { class: "group", "aria-hidden": "true" }, mark.letter));
      if (at < hits) this.addTokens(part, seqId, at, Math.min(hits, end), "tokens hit");
      if (end > hits) this.addTokens(part, seqId, Math.max(at, hits), end, "tokens");
      prompt.append(part);
      at = end;
    }
  }

  /** Adds the texts of tokens. A long row shows its beginning and its end, and the rest after a click. */
  addTokens(part, seqId, from, to, name) {
    const add = (first, last) => {
      let text = "";
      for (let position = first; position < last; position += 1) text += shorten(this.say(seqId, position));
      return make("span", { class: name, "data-from": first, "data-to": last }, text);
    };
    let head = from,
      tail = to;
    for (let room = LONG; head < to && room > 0; head += 1) room -= this.say(seqId, head).length;
    for (let room = LONG; tail > head && room > 0; tail -= 1) room -= this.say(seqId, tail - 1).length;
    part.append(add(from, head));
    if (tail > head) {
      part.append(
        make(
          "button",
          { type: "button", class: "link", onclick: (event) => event.target.replaceWith(add(head, tail)) },
          ` … ${plural(tail - head, "more token")} … `,
        ),
      );
    }
    if (tail < to) part.append(add(tail, to));
  }

  say(seqId, position) {
    const { run } = this.view;
    return run.hasTexts ? run.tokenText(seqId, position) : `${run.tokens(seqId, position, position + 1)[0]} `;
  }

  /** The token that contains the character at a click. */
  tokenAt(event) {
    const tokens = event.target.closest?.(".tokens");
    const caret = document.caretPositionFromPoint?.(event.clientX, event.clientY);
    if (!tokens || !caret || !tokens.contains(caret.offsetNode)) return null;
    const seqId = Number(tokens.closest(".text").dataset.seq);
    let position = Number(tokens.dataset.from),
      left = caret.offset;
    for (; position < Number(tokens.dataset.to) - 1; position += 1) {
      left -= shorten(this.say(seqId, position)).length;
      if (left < 0) break;
    }
    return { seqId, position };
  }

  update(item, request, state) {
    const hits = request.numCached ?? 0;
    if (item.hits !== hits) {
      item.hits = hits;
      this.fillPrompt(item.prompt, request.key, hits);
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
    seqs.forEach((seq, i) => {
      let sample = item.samples.get(seq.seqId);
      if (!sample) {
        const isAlone = request.numSeqs === 1;
        const text = make("span", { class: "output", dir: isAlone ? null : "auto" });
        const element = make(
          isAlone ? "span" : "div",
          { class: isAlone ? null : "sample" },
          isAlone ? null : chip(this.view.run.names.get(seq.seqId)),
          text,
          make("span", { class: "end" }),
        );
        sample = { element, text, end: element.lastChild };
        item.samples.set(seq.seqId, sample);
      }
      // The best beam comes first, and another beam may become the best one.
      if (item.outputs.children[i] !== sample.element)
        item.outputs.insertBefore(sample.element, item.outputs.children[i] ?? null);
      setText(sample.text, outputText(this.view.run, seq));
      setText(sample.end, seq.finishReason ? ` ■ ${seq.finishReason}` : "");
    });
  }
}

function outputText(run, seq) {
  const { tokens, texts } = run.log.get(seq.seqId);
  let text = "";
  for (let position = seq.numPrompt; position < seq.numTokens; position += 1) {
    text += run.hasTexts && texts[position] !== "" ? texts[position] : "";
  }
  if (!text) text = tokens.slice(seq.numPrompt, seq.numTokens).join(" ");
  return text.length > LONG * 4
    ? `${text.slice(0, LONG)} … ${whole.format(text.length - 2 * LONG)} characters … ${text.slice(-LONG)}`
    : text;
}

/** Shortens a token's text, since a single token can be of any length. */
function shorten(text) {
  return text.length > LONG
    ? `${text.slice(0, LONG)}… (${whole.format(text.length - LONG)} characters more)`
    : text;
}

/** Sequence id -> [{end, mark, count}]: the whole blocks in which its prompt equals other prompts. */
function commonPrefixes(run) {
  const size = run.engine.block_size;
  const prompts = [];
  for (const step of run.trace.steps) {
    for (const event of step.events)
      if (event.event === "RequestAdded")
        prompts.push([event.seq_id, event.prompt_token_ids, event.cache_salt]);
  }
  const numbers = new Map(); // number of the prefix before a block, and its tokens -> prefix number
  const sharers = []; // prefix number -> the sequences that begin with this prefix
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
  return new Map(
    chains.map(([seqId, chain]) => {
      const found = [];
      chain.forEach((number, block) => {
        const all = sharers[number];
        if (all.length < 2) return;
        const name = all.join();
        if (!marks.has(name))
          marks.set(name, { number: marks.size, letter: String.fromCharCode(0x3b1 + (marks.size % 17)) });
        const last = found[found.length - 1];
        if (last && last.mark === marks.get(name)) last.end = (block + 1) * size;
        else found.push({ end: (block + 1) * size, mark: marks.get(name), count: all.length });
      });
      return [seqId, found];
    }),
  );
}
