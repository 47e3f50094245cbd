// Run: a whole trace, gone through once. It has the curves of the charts, the rows of the timeline, the blocks'
// histories and a checkpoint every few steps; the state at a step is rebuilt from the checkpoint before it.

const CHECKPOINT_EVERY = 20;

class Run {
  constructor(trace) {
    this.trace = trace;
    this.engine = trace.engine;
    this.hasTexts = trace.texts;
    this.log = new Map(); // sequence id -> {tokens, texts} of the whole run
    this.names = new Map(); // sequence id -> {name, letter, colour, …}
    this.rows = new Map(); // key -> {key, requestId, spans}, the rows of the timeline
    this.histories = []; // block id -> [step, number of the event] pairs, one after the other
    this.curves = {
      time: [],
      used: [],
      cached: [],
      running: [],
      waiting: [],
      swapped: [],
      hits: [],
      preemptions: [],
      scheduled: [],
      ...Object.fromEntries(KINDS.map(([kind]) => [kind, []])),
    };
    this.checkpoints = [];
    this.current = new State(this.engine, this.log);
    this.start = firstTime(trace.steps);
    trace.steps.forEach((step, number) => this.take(step, number));
    this.seek(0);
  }

  get numSteps() {
    return this.trace.steps.length - 1;
  }

  get times() {
    return this.curves.time;
  }

  /** The state after step `number`. The next call changes the same object. */
  seek(number) {
    const checkpoint = Math.floor(number / CHECKPOINT_EVERY);
    const isAhead = this.position <= number && Math.floor(this.position / CHECKPOINT_EVERY) >= checkpoint;
    if (!isAhead) {
      this.current = this.checkpoints[checkpoint].copy();
      this.position = checkpoint * CHECKPOINT_EVERY;
    }
    while (this.position < number) {
      this.position += 1;
      this.current.begin(this.trace.steps[this.position]);
    }
    return this.current;
  }

  /** The last step that has ended at this time, in seconds since the first event. */
  stepAt(time) {
    let low = 0,
      high = this.numSteps;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.times[middle] <= time + 1e-9) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  tokens(seqId, start, end) {
    return this.log.get(seqId)?.tokens.slice(start, end) ?? [];
  }

  /** The text of a token at a position, or its id where there is no text. */
  tokenText(seqId, position) {
    return this.log.get(seqId)?.texts[position] || "";
  }

  // The one pass

  take(step, number) {
    const state = this.current;
    step.events.forEach((event, i) => this.note(event, number, i));
    state.begin(step);
    if (number % CHECKPOINT_EVERY === 0) this.checkpoints.push(state.copy());
    if (!step.isAfter) this.noteSpans(state.phases, number);
    const { curves } = this;
    const use = slotUse(state);
    for (const [kind] of KINDS) curves[kind].push(use[kind]);
    curves.time.push(number === 0 ? 0 : step.time - this.start);
    curves.used.push(usedShare(state));
    let cachedFree = 0;
    for (const blockId of state.cached.keys()) cachedFree += state.refCnt[blockId] === 0 ? 1 : 0;
    curves.cached.push(state.numBlocks ? cachedFree / (state.numBlocks - 1) : 0);
    curves.running.push(state.running.length);
    curves.waiting.push(state.waiting.length);
    curves.swapped.push(state.swapped.length);
    curves.hits.push(state.numHitTokens);
    curves.preemptions.push(state.numPreemptions);
    curves.scheduled.push(state.chunks.reduce((sum, chunk) => sum + chunk.numTokens, 0));
    this.position = number;
  }

  note(event, number, i) {
    switch (event.event) {
      case "RequestAdded": {
        const tokens = event.prompt_token_ids.slice();
        this.log.set(event.seq_id, { tokens, texts: tokens.map((_, at) => event.prompt_texts[at] ?? "") });
        this.rows.set(event.seq_id, { key: event.seq_id, requestId: event.request_id, spans: [] });
        this.nameSequence(
          event.seq_id,
          { request: event.seq_id, requestId: event.request_id, numPrompt: tokens.length },
          event.num_seqs > 1 ? 0 : null,
        );
        break;
      }
      case "SequenceForked": {
        if (this.log.has(event.child)) break;
        const { tokens, texts } = this.log.get(event.parent);
        this.log.set(event.child, { tokens: tokens.slice(), texts: texts.slice() });
        this.nameSequence(event.child, this.names.get(event.parent), event.index);
        break;
      }
      case "TokensSampled":
      case "BeamsChosen":
        event.seq_ids.forEach((seqId, at) => {
          const log = this.log.get(seqId);
          log.tokens.push(event.token_ids[at]);
          log.texts.push(event.texts?.[at] ?? "");
        });
        break;
      default:
    }
    for (const blockId of blocksOf(event)) {
      (this.histories[blockId] ??= []).push(number, i);
    }
  }

  nameSequence(seqId, { request, requestId, numPrompt }, index) {
    const name = index === null ? requestId : `${requestId} #${index}`;
    const letter = letterOf(this.names.size);
    this.names.set(seqId, { seqId, request, requestId, numPrompt, name, letter, colour: this.freeColour() });
  }

  /** The colour that the fewest sequences with memory or in a queue have. */
  freeColour() {
    const uses = new Array(NUM_COLOURS).fill(0);
    const state = this.current;
    for (const [seqId, { request, colour }] of this.names) {
      // A sequence that has no state yet is added later in the same step.
      const isOver =
        OVER.includes(state.requests.get(request)?.status) || state.sequences.get(seqId)?.finishReason;
      if (!isOver) uses[colour] += 1;
    }
    const from = this.names.size;
    let best = from % NUM_COLOURS;
    for (let i = 0; i < NUM_COLOURS; i += 1) {
      const colour = (from + i) % NUM_COLOURS;
      if (uses[colour] < uses[best]) best = colour;
    }
    return best;
  }

  noteSpans(phases, number) {
    for (const [key, kind] of phases) {
      const { spans } = this.rows.get(key);
      const last = spans[spans.length - 1];
      if (last && last.kind === kind && last.to === number - 1) last.to = number;
      else spans.push({ kind, from: number, to: number });
    }
  }
}

/** The blocks that an event is about. */
function blocksOf(event) {
  switch (event.event) {
    case "BlocksTaken":
    case "BlocksTouched":
    case "BlocksReleased":
    case "BlocksSwappedIn":
    case "SequenceForked":
      return event.block_ids;
    case "BlockCopied":
      return [event.source, event.target];
    case "BlockStored":
    case "BlockRemoved":
      return [event.block_id];
    default:
      return [];
  }
}

function firstTime(steps) {
  for (const step of steps) {
    for (const event of step.events) if (event.event === "RequestAdded") return event.time;
  }
  return 0;
}

function usedShare(state) {
  const { kv_layout: layout, num_blocks: numBlocks, block_size: size } = state.engine;
  if (layout === "paged") return numBlocks > 1 ? 1 - state.numFree / (numBlocks - 1) : 0;
  if (layout !== "contiguous") return 0;
  let allocated = 0;
  for (const region of state.regions.values()) allocated += region.numAllocated;
  return allocated / (numBlocks * size);
}

/** A, B, …, Z, a, …, z, 0, …, 9, and again: the letters of `minipaged demo`. */
function letterOf(number) {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  return letters[number % letters.length];
}
