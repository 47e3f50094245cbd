// What each slot of the KV memory is used for; see `minipaged/kv/breakdown.py` for the five kinds.

const KINDS = [
  ["tokens", "token states"],
  ["reserved", "reservation"],
  ["internal", "internal fragmentation"],
  ["external", "external fragmentation"],
  ["free", "free"],
];

function slotUse(state) {
  const layout = state.engine.kv_layout;
  if (layout === "paged") return pagedSlotUse(state);
  if (layout === "contiguous") return contiguousSlotUse(state);
  return { tokens: 0, reserved: 0, internal: 0, external: 0, free: 0 };
}

function numAtEnd(state, seq) {
  return seq.numPrompt + state.requests.get(seq.request).maxTokens - 1;
}

function pagedSlotUse(state) {
  const size = state.engine.block_size;
  const filled = new Map(),
    useful = new Map();
  for (const key of state.running) {
    for (const seq of state.sequencesOf(state.requests.get(key))) {
      const end = numAtEnd(state, seq);
      for (let i = 0; i < seq.table.length; i += 1) {
        const blockId = seq.table[i];
        const now = state.filled(seq, i);
        const later = Math.min(size, Math.max(0, end - i * size));
        filled.set(blockId, Math.max(filled.get(blockId) ?? 0, now));
        useful.set(blockId, Math.max(useful.get(blockId) ?? 0, now, later));
      }
    }
  }
  let tokens = 0,
    inUse = 0;
  for (const count of filled.values()) tokens += count;
  for (const count of useful.values()) inUse += count;
  return {
    tokens,
    reserved: inUse - tokens,
    internal: useful.size * size - inUse,
    external: 0,
    free: state.numFree * size,
  };
}

function contiguousSlotUse(state) {
  const { num_blocks: numBlocks, block_size: size, region_allocator: allocator } = state.engine;
  const regions = [...state.regions.values()].sort((a, b) => a.start - b.start);
  let tokens = 0,
    atEnd = 0,
    requested = 0,
    allocated = 0;
  for (const region of regions) {
    const request = state.requests.get(region.request);
    tokens += region.seqId === null ? 0 : state.sequences.get(region.seqId).numComputed;
    atEnd += numAtEnd(state, state.sequences.get(request.seqIds[0]));
    requested += region.numSlots;
    allocated += region.numAllocated;
  }
  const [next] = state.waiting;
  const wanted = next
    ? slotsToReserve(state.engine, state.sequences.get(next.seqIds[0]).numPrompt, next.maxTokens)
    : 1;
  const free =
    allocator === "buddy" ? freeBuddies(regions, numBlocks * size) : gaps(regions, numBlocks * size);
  const sum = (sizes) => sizes.reduce((a, b) => a + b, 0);
  const tooSmall = sum(free.filter((each) => each < wanted));
  return {
    tokens,
    reserved: atEnd - tokens,
    internal: requested - atEnd,
    external: allocated - requested + tooSmall,
    free: sum(free) - tooSmall,
  };
}

function slotsToReserve(engine, numPrompt, maxTokens) {
  if (engine.reserve === "max") return engine.max_model_len;
  if (engine.reserve === "pow2")
    return Math.min(engine.max_model_len, numPrompt + 2 ** Math.ceil(Math.log2(maxTokens)));
  return numPrompt + maxTokens - 1;
}

/** The sizes of the gaps between regions in order of their starts. */
function gaps(regions, numSlots) {
  const found = [];
  let end = 0;
  for (const region of regions) {
    if (region.start > end) found.push(region.start - end);
    end = region.start + region.numAllocated;
  }
  if (numSlots > end) found.push(numSlots - end);
  return found;
}

/** The sizes of a buddy allocator's free blocks. Its pool begins as one block for each bit of its size that is 1. */
function freeBuddies(regions, numSlots) {
  const found = [];
  for (let start = 0, size = 2 ** 40; size >= 1; size /= 2) {
    if (start + size > numSlots) continue;
    freeInBuddy(regions, start, size, found);
    start += size;
  }
  return found;
}

function freeInBuddy(regions, start, size, found) {
  const inside = regions.filter((region) => start <= region.start && region.start < start + size);
  if (!inside.length) found.push(size);
  else if (inside[0].numAllocated < size) {
    freeInBuddy(inside, start, size / 2, found);
    freeInBuddy(inside, start + size / 2, size / 2, found);
  }
}
