// An event in words: an array of texts and elements. If a block is given, only what the event says about that block.

function words(event, run, blockId = null) {
  const who = (seqId) => {
    const names = run.names.get(seqId);
    return names ? [chip(names), " ", foreign(names.name)] : [`sequence ${seqId}`];
  };
  const request = (requestId) => foreign(requestId);
  const which = (blockIds) => blockList(blockId === null ? blockIds : [blockId]);
  switch (event.event) {
    case "RequestAdded":
      return [
        request(event.request_id),
        ` arrived with ${plural(event.prompt_token_ids.length, "prompt token")}, at most ${whole.format(event.max_tokens)} to generate`,
        event.num_seqs > 1 ? `, ${event.num_seqs} ${event.is_beam_search ? "beams" : "samples"}` : "",
      ];
    case "RequestAdmitted":
      return [
        request(event.request_id),
        ` was admitted${event.num_cached_tokens ? `: ${plural(event.num_cached_tokens, "token")} came from the prefix cache` : ""}`,
      ];
    case "RequestPreempted":
      return [request(event.request_id), " was preempted"];
    case "RequestResumed":
      return [
        request(event.request_id),
        ` runs again${event.num_cached_tokens ? `: ${plural(event.num_cached_tokens, "token")} came from the prefix cache` : ""}`,
      ];
    case "RequestFinished":
      return [request(event.request_id), " finished"];
    case "RequestAborted":
      return [request(event.request_id), " was aborted"];
    case "PrefixHit":
      return [...who(event.seq_id), ` found ${plural(event.num_tokens, "token")} in cached blocks`];
    case "BlocksTaken":
      return [...who(event.seq_id), ` took ${which(event.block_ids)}`];
    case "BlocksTouched":
      return [...who(event.seq_id), ` shares ${which(event.block_ids)} from the prefix cache`];
    case "BlockCopied":
      return [
        ...who(event.seq_id),
        ` copied block ${event.source} to block ${event.target} before writing (logical block ${event.index})`,
      ];
    case "BlocksReleased":
      return event.block_ids.length
        ? [...who(event.seq_id), ` gave up ${which(event.block_ids)}`]
        : [...who(event.seq_id), " gave up its computed tokens"];
    case "BlockStored":
      return [
        ...who(event.seq_id),
        ` cached block ${event.block_id} (logical block ${event.index}) as `,
        make("code", {}, event.block_hash),
      ];
    case "BlockRemoved":
      return [`block ${event.block_id} is cached no longer (`, make("code", {}, event.block_hash), ")"];
    case "AllBlocksCleared":
      return ["the prefix cache was reset"];
    case "SequenceForked":
      return [
        ...who(event.child),
        " forked from ",
        ...who(event.parent),
        ` at ${plural(event.num_tokens, "token")}`,
        event.block_ids.length ? `, shares ${which(event.block_ids)}` : "",
      ];
    case "BlocksSwappedOut":
      return [...who(event.seq_id), ` was swapped out to ${plural(event.cpu_block_ids.length, "CPU block")}`];
    case "BlocksSwappedIn":
      return [...who(event.seq_id), ` was swapped in to ${which(event.block_ids)}`];
    case "CpuBlocksFreed":
      return [...who(event.seq_id), " lost its CPU blocks"];
    case "RegionReserved":
      return [
        request(event.request_id),
        ` reserved slots ${event.start} to ${event.start + event.num_slots - 1}`,
      ];
    case "RegionHeld":
      return [...who(event.seq_id), ` uses the region at slot ${event.start}`];
    case "RegionReturned":
      return [...who(event.seq_id), ` left the region at slot ${event.start}`];
    case "RegionFreed":
      return [`the region at slot ${event.start} was freed`];
    case "StepPlanned":
      return [
        `planned ${plural(
          event.num_tokens.reduce((sum, each) => sum + each, 0),
          "token",
        )} of ${plural(event.seq_ids.length, "sequence")} in ${duration(event.time - event.began)}`,
      ];
    case "StepExecuted":
      return ["the planned tokens are computed"];
    case "TokensSampled":
      return [`${plural(event.seq_ids.length, "token")} sampled`];
    case "BeamsChosen":
      return [request(event.request_id), ` goes on with ${plural(event.seq_ids.length, "beam")}`];
    case "SequenceFinished":
      return [
        ...who(event.seq_id),
        ` ended: ${event.finish_reason}`,
        event.stop_reason === null ? "" : foreign(` (${visible(event.stop_reason)})`),
      ];
    case "StepFinished":
      return [`step ${event.step} ended`];
    case "StepFailed":
      return [make("strong", {}, "the step failed"), " and was undone: ", foreign(event.error)];
    case "EngineReset":
      return [make("strong", {}, "the engine was reset"), ": ", foreign(event.error)];
    default:
      return [event.event];
  }
}

function blockList(blockIds) {
  if (blockIds.length === 1) return `block ${blockIds[0]}`;
  const ranges = [];
  for (const blockId of blockIds) {
    const last = ranges[ranges.length - 1];
    if (last && last[1] === blockId - 1) last[1] = blockId;
    else ranges.push([blockId, blockId]);
  }
  const texts = ranges.slice(0, 6).map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return `blocks ${texts.join(", ")}${ranges.length > 6 ? ", …" : ""}`;
}

function duration(seconds) {
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  return seconds < 1 ? `${(seconds * 1e3).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
}
