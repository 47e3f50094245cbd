// What each event changes in a state. An event that is not here changes nothing.

const CHANGES = {
  RequestAdded(state, event) {
    const key = event.seq_id;
    state.keys.set(event.request_id, key);
    state.requests.set(key, {
      key,
      requestId: event.request_id,
      status: "waiting",
      seqIds: [event.seq_id],
      maxTokens: event.max_tokens,
      numSeqs: event.num_seqs,
      isBeamSearch: event.is_beam_search,
      priority: event.priority,
      salt: event.cache_salt,
      rank: event.rank,
      added: event.time,
      numPreemptions: 0,
      numCached: null,
    });
    const numPrompt = event.prompt_token_ids.length;
    state.addSequence(event.seq_id, key, 0, numPrompt, numPrompt);
  },
  PrefixHit(state, event) {
    state.update(event.seq_id, { numComputed: event.num_tokens });
    state.numHitTokens += event.num_tokens;
  },
  RequestAdmitted(state, event) {
    const key = state.keys.get(event.request_id);
    state.move(key, "running");
    state.updateRequest(key, { numCached: event.num_cached_tokens });
  },
  RequestResumed(state, event) {
    state.move(state.keys.get(event.request_id), "running");
  },
  RequestPreempted(state, event) {
    state.preempt(state.keys.get(event.request_id));
  },
  RequestFinished(state, event) {
    state.move(state.keys.get(event.request_id), "finished");
  },
  RequestAborted(state, event) {
    state.move(state.keys.get(event.request_id), "aborted");
  },
  BlocksTaken(state, event) {
    state.hold(event.seq_id, event.block_ids);
  },
  BlocksTouched(state, event) {
    state.hold(event.seq_id, event.block_ids);
  },
  BlockCopied(state, event) {
    const table = state.sequences.get(event.seq_id).table.slice();
    table[event.index] = event.target;
    state.update(event.seq_id, { table });
    state.count(event.target, 1);
    state.count(event.source, -1);
    state.numCopiedBlocks += 1;
  },
  SequenceForked(state, event) {
    if (!state.sequences.has(event.child)) {
      const parent = state.sequences.get(event.parent);
      const { seqIds } = state.requests.get(parent.request);
      state.addSequence(event.child, parent.request, event.index, parent.numTokens, parent.numPrompt);
      state.updateRequest(parent.request, { seqIds: [...seqIds, event.child] });
    }
    state.update(event.child, { numComputed: event.num_tokens });
    state.hold(event.child, event.block_ids);
  },
  BlocksReleased(state, event) {
    const seq = state.sequences.get(event.seq_id);
    for (const blockId of seq.table) state.count(blockId, -1);
    state.update(event.seq_id, { table: [], numComputed: seq.cpu.length ? seq.numComputed : 0 });
  },
  BlockStored(state, event) {
    const size = state.engine.block_size;
    state.cached.set(event.block_id, {
      hash: event.block_hash,
      parent: event.parent_block_hash,
      seqId: event.seq_id,
      start: event.index * size,
      end: (event.index + 1) * size,
    });
    state.mark(event.block_id, STORED);
  },
  BlockRemoved(state, event) {
    state.cached.delete(event.block_id);
    if (state.refCnt[event.block_id] === 0) state.handingOut.add(event.block_id);
    state.mark(event.block_id, REMOVED);
  },
  AllBlocksCleared(state) {
    state.handingOut.clear();
  },
  BlocksSwappedOut(state, event) {
    state.update(event.seq_id, { cpu: event.cpu_block_ids });
    const { request } = state.sequences.get(event.seq_id);
    if (state.requests.get(request).status !== "swapped") state.move(request, "swapped");
  },
  BlocksSwappedIn(state, event) {
    state.update(event.seq_id, { cpu: [] });
    state.hold(event.seq_id, event.block_ids);
  },
  CpuBlocksFreed(state, event) {
    state.update(event.seq_id, { cpu: [], numComputed: 0 });
  },
  RegionReserved(state, event) {
    state.regions.set(event.start, {
      start: event.start,
      numSlots: event.num_slots,
      numAllocated: event.num_allocated,
      request: state.keys.get(event.request_id),
      seqId: null,
    });
  },
  RegionHeld(state, event) {
    state.regions.set(event.start, { ...state.regions.get(event.start), seqId: event.seq_id });
    state.update(event.seq_id, { region: event.start });
  },
  RegionReturned(state, event) {
    state.regions.set(event.start, { ...state.regions.get(event.start), seqId: null });
    state.update(event.seq_id, { region: null, numComputed: 0 });
  },
  RegionFreed(state, event) {
    const { seqId } = state.regions.get(event.start);
    state.regions.delete(event.start);
    if (seqId !== null) state.update(seqId, { region: null, numComputed: 0 });
  },
  StepPlanned(state, event) {
    state.chunks = event.seq_ids.map((seqId, i) => ({
      seqId,
      start: event.starts[i],
      numTokens: event.num_tokens[i],
    }));
    const size = state.engine.block_size;
    for (const { seqId, start, numTokens } of state.chunks) {
      const table = state.sequences.get(seqId)?.table ?? [];
      if (!table.length) continue;
      const last = Math.floor((start + numTokens - 1) / size);
      for (let i = Math.floor(start / size); i <= last; i += 1) state.mark(table[i], WRITTEN);
    }
  },
  StepExecuted(state) {
    state.phases = new Map();
    for (const request of state.requests.values()) {
      if (!OVER.includes(request.status)) state.phases.set(request.key, state.phase(request));
    }
    for (const { seqId, start, numTokens } of state.chunks)
      state.update(seqId, { numComputed: start + numTokens });
  },
  TokensSampled(state, event) {
    for (const seqId of event.seq_ids)
      state.update(seqId, { numTokens: state.sequences.get(seqId).numTokens + 1 });
  },
  BeamsChosen(state, event) {
    state.updateRequest(state.keys.get(event.request_id), { seqIds: event.seq_ids });
    CHANGES.TokensSampled(state, event);
  },
  SequenceFinished(state, event) {
    state.update(event.seq_id, { finishReason: event.finish_reason, stopReason: event.stop_reason });
  },
  StepFinished(state, event) {
    state.step = event.step;
    state.time = event.time;
    state.countedFree = event.num_free;
  },
  StepFailed(state, event) {
    const { cached, running, regions } = state;
    const lost = event.waiting.map((requestId) => state.keys.get(requestId));
    state.empty();
    state.running = running;
    for (const key of lost) {
      if (state.requests.get(key).status === "running") state.preempt(key);
      else state.move(key, "preempted");
      state.loseMemory(key);
    }
    for (const region of regions.values())
      if (!lost.includes(region.request)) state.regions.set(region.start, region);
    event.seq_ids.forEach((seqId, i) => {
      state.update(seqId, { numComputed: event.num_computed_tokens[i], table: [] });
      state.hold(seqId, event.block_tables[i]);
    });
    const unknown = { hash: "", parent: null, seqId: null, start: 0, end: 0 };
    for (const blockId of event.cached) state.cached.set(blockId, cached.get(blockId) ?? unknown);
  },
  EngineReset(state) {
    for (const { key, status } of state.requests.values()) {
      if (OVER.includes(status)) continue;
      state.move(key, "aborted");
      state.loseMemory(key);
    }
    state.empty();
  },
};
