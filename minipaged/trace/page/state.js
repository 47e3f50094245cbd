// State: an engine's state, changed by one event at a time. It does what `minipaged/trace/replay.py` does.
//
// Requests, sequences and regions are records that are replaced, never changed: so a copy of a state shares them
// with the state that it was copied from, and a checkpoint is cheap. Tokens and texts are in the run's log, since
// they are only ever appended; a sequence has the number of its tokens.
//
// Requests may have the same id one after another. So a request is known by its key, the id of its first sequence.

const OVER = ["finished", "aborted"];
const WRITTEN = 1,
  GAINED = 2,
  LOST = 4,
  STORED = 8,
  REMOVED = 16;

class State {
  constructor(engine, log) {
    this.engine = engine;
    this.log = log; // sequence id -> {tokens, texts}
    this.step = 0;
    this.time = 0;
    this.requests = new Map(); // by key
    this.sequences = new Map();
    this.keys = new Map(); // request id -> key of the last request with that id
    this.chunks = [];
    this.phases = new Map(); // key -> what the request did in this step
    this.changes = new Map(); // block id -> what happened to it in this step, as bits
    this.numPreemptions = this.numEvictions = this.numCopiedBlocks = this.numHitTokens = 0;
    this.empty();
  }

  empty() {
    const numBlocks = this.engine.kv_layout === "paged" ? this.engine.num_blocks : 0;
    this.refCnt = new Int32Array(numBlocks);
    if (numBlocks) this.refCnt[0] = 1; // the null block
    this.numFree = Math.max(0, numBlocks - 1);
    this.countedFree = this.numFree; // the free blocks that the engine counted
    this.cached = new Map(); // block id -> {hash, parent, seqId, start, end}
    this.handingOut = new Set();
    this.regions = new Map();
    this.running = []; // keys, in the order of admission
  }

  copy() {
    const copy = Object.create(State.prototype);
    Object.assign(copy, this);
    copy.requests = new Map(this.requests);
    copy.keys = new Map(this.keys);
    copy.sequences = new Map(this.sequences);
    copy.changes = new Map(this.changes);
    copy.refCnt = this.refCnt.slice();
    copy.cached = new Map(this.cached);
    copy.handingOut = new Set(this.handingOut);
    copy.regions = new Map(this.regions);
    copy.running = this.running.slice();
    return copy;
  }

  get numBlocks() {
    return this.refCnt.length;
  }

  /** The requests of these states, the next to run first. */
  queue(...statuses) {
    const found = [...this.requests.values()].filter((request) => statuses.includes(request.status));
    return found.sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]);
  }

  get waiting() {
    return this.queue("waiting", "preempted");
  }

  get swapped() {
    return this.queue("swapped");
  }

  /** The sequences that belong to a request; beams that were dropped do not. */
  sequencesOf(request) {
    return request.seqIds.map((seqId) => this.sequences.get(seqId));
  }

  /** The sequences that hold blocks or a region. */
  get holding() {
    return [...this.sequences.values()].filter((seq) => seq.table.length || seq.region !== null);
  }

  /** Block id -> [{seqId, index}] for every entry of a block table, in the order of the sequence ids. */
  holders() {
    const holders = new Map();
    for (const seq of this.holding.sort((a, b) => a.seqId - b.seqId)) {
      seq.table.forEach((blockId, index) => {
        const entry = { seqId: seq.seqId, index };
        if (holders.has(blockId)) holders.get(blockId).push(entry);
        else holders.set(blockId, [entry]);
      });
    }
    return holders;
  }

  /** How many slots of entry `index` of a block table hold computed tokens. */
  filled(seq, index) {
    const size = this.engine.block_size;
    return Math.min(size, Math.max(0, seq.numComputed - index * size));
  }

  /** The tokens in a block's filled slots: those of its fullest holder, or the cached ones of a free block. */
  contents(blockId, holders) {
    const size = this.engine.block_size;
    let best = { seqId: null, start: 0, end: 0 };
    for (const { seqId, index } of holders.get(blockId) ?? []) {
      const filled = this.filled(this.sequences.get(seqId), index);
      if (filled > best.end - best.start) best = { seqId, start: index * size, end: index * size + filled };
    }
    return this.refCnt[blockId] === 0 ? (this.cached.get(blockId) ?? best) : best;
  }

  // Events

  begin(step) {
    this.changes = new Map();
    this.phases = new Map();
    for (const event of step.events) this.apply(event);
  }

  apply(event) {
    const change = CHANGES[event.event];
    if (change) change(this, event);
  }

  mark(blockId, bit) {
    this.changes.set(blockId, (this.changes.get(blockId) ?? 0) | bit);
  }

  count(blockId, by) {
    const before = this.refCnt[blockId];
    this.refCnt[blockId] = before + by;
    if (before === 0 && by > 0) {
      this.numFree -= 1;
      if (this.handingOut.delete(blockId)) this.numEvictions += 1;
    } else if (before + by === 0) this.numFree += 1;
    this.mark(blockId, by > 0 ? GAINED : LOST);
  }

  hold(seqId, blockIds) {
    const seq = this.sequences.get(seqId);
    this.update(seqId, { table: seq.table.concat(blockIds) });
    for (const blockId of blockIds) this.count(blockId, 1);
  }

  update(seqId, values) {
    this.sequences.set(seqId, { ...this.sequences.get(seqId), ...values });
  }

  updateRequest(key, values) {
    this.requests.set(key, { ...this.requests.get(key), ...values });
  }

  addSequence(seqId, request, index, numTokens, numPrompt) {
    this.sequences.set(seqId, {
      seqId,
      request,
      index,
      numPrompt,
      numTokens,
      numComputed: 0,
      table: [],
      cpu: [],
      region: null,
      finishReason: null,
      stopReason: null,
    });
  }

  /** Moves a request from the queue that it is in, if any, to that of its new status. */
  move(key, status) {
    this.running = this.running.filter((each) => each !== key);
    if (status === "running") this.running.push(key);
    this.updateRequest(key, { status });
  }

  preempt(key) {
    this.move(key, "preempted");
    this.updateRequest(key, { numPreemptions: this.requests.get(key).numPreemptions + 1 });
    this.numPreemptions += 1;
  }

  loseMemory(key) {
    for (const seqId of this.requests.get(key).seqIds) {
      this.update(seqId, { table: [], cpu: [], region: null, numComputed: 0 });
    }
  }

  /** What a request does in the planned step. */
  phase(request) {
    if (request.status !== "running") return request.status;
    const own = this.chunks.filter((chunk) => request.seqIds.includes(chunk.seqId));
    if (!own.length) return "idle";
    const isDecode = own.every(({ seqId, start }) => {
      const seq = this.sequences.get(seqId);
      return start === seq.numTokens - 1 && seq.numTokens > seq.numPrompt;
    });
    return isDecode ? "decode" : "prefill";
  }
}
