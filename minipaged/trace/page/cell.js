// A cell of the pool: its fill level in its owners' colours, its letter or its count, and the mark of a change.

/** Paints a cell at a place; `look` has the colours, the names of the sequences, and the block size. */
function paintCell(context, cell, x, y, size, look) {
  const { colours } = look;
  const inner = size - (size >= 14 ? 2 : 1);
  context.clearRect(x, y, inner, inner);
  if (cell.block === 0) {
    paintNull(context, x, y, inner, colours);
    return;
  }
  const share = cell.filled / look.blockSize;
  const high = Math.round(share * inner * 10) / 10;
  const owners = cell.owners.map((seqId) => look.names.get(seqId).colour);
  if (share < 1 || !owners.length) {
    context.fillStyle = colours.empty;
    context.fillRect(x, y, inner, inner);
  }
  if (owners.length) {
    if (share < 1) {
      context.globalAlpha = 0.22;
      stripes(context, owners, x, y, inner, inner);
      context.globalAlpha = 1;
    }
    stripes(context, owners, x, y + inner - high, inner, high);
    if (size >= 16) label(context, cell, owners, share, x + inner / 2, y + inner / 2, size, look);
  } else if (cell.cached) {
    context.fillStyle = colours.line;
    context.fillRect(x, y + inner - high, inner, high);
    context.strokeStyle = size >= 14 ? colours.ink : colours.muted;
    context.lineWidth = size >= 14 ? 1 : 0.5;
    context.strokeRect(x + 0.75, y + 0.75, inner - 1.5, inner - 1.5);
  }
  drawMark(context, cell.mark, x, y, inner, colours);
}

/** The null block is crossed out. */
function paintNull(context, x, y, inner, colours) {
  context.strokeStyle = colours.muted;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
  context.beginPath();
  context.moveTo(x + 2, y + 2);
  context.lineTo(x + inner - 2, y + inner - 2);
  context.moveTo(x + inner - 2, y + 2);
  context.lineTo(x + 2, y + inner - 2);
  context.stroke();
}

/** The letter of the only owner, or the number of owners. */
function label(context, cell, owners, share, x, y, size, { colours, names }) {
  const high = Math.min(14, Math.round(size * 0.44));
  context.font = `600 ${high}px ${colours.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (owners.length === 1) {
    context.fillStyle = share > 0.6 ? inkOn[owners[0]] : colours.ink;
    context.fillText(names.get(cell.owners[0]).letter, x, y + 0.5);
    return;
  }
  context.fillStyle = colours.panel;
  context.beginPath();
  context.arc(x, y, high * 0.72, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = colours.ink;
  context.fillText(String(owners.length), x, y + 0.5);
}

/** Whether two cells look the same. */
function isSame(a, b) {
  return (
    b !== undefined &&
    a.filled === b.filled &&
    a.refCnt === b.refCnt &&
    a.cached === b.cached &&
    a.mark === b.mark &&
    a.owners.length === b.owners.length &&
    a.owners.every((owner, i) => owner === b.owners[i])
  );
}

const MARKS = {
  gained: "taken or shared in this step",
  lost: "given up in this step",
  written: "written in this step",
};

function markOf(bits) {
  if (bits & GAINED) return "gained";
  if (bits & (LOST | REMOVED)) return "lost";
  return bits & WRITTEN ? "written" : null;
}

function drawMark(context, mark, x, y, inner, colours) {
  if (mark === null) return;
  context.strokeStyle = context.fillStyle = colours.ink;
  if (mark === "written") {
    const side = Math.max(3, inner * 0.24);
    context.beginPath();
    context.moveTo(x + inner - side, y);
    context.lineTo(x + inner, y);
    context.lineTo(x + inner, y + side);
    context.fill();
    return;
  }
  context.lineWidth = inner >= 14 ? 2 : 1.5;
  if (mark === "lost") context.setLineDash(inner >= 14 ? [4, 3] : [2, 2]);
  context.strokeRect(x + 1, y + 1, inner - 2, inner - 2);
  context.setLineDash([]);
}

/** Fills a rectangle with upright stripes in turn. */
function stripes(context, owners, x, y, width, height) {
  if (owners.length === 1) {
    context.fillStyle = PALETTE[owners[0]];
    context.fillRect(x, y, width, height);
    return;
  }
  const wide = Math.max(2, Math.min(width / owners.length, width / 4));
  for (let i = 0, at = 0; at < width; i += 1, at += wide) {
    context.fillStyle = PALETTE[owners[i % owners.length]];
    context.fillRect(x + at, y, Math.min(wide, width - at), height);
  }
}

function poolLegend() {
  const item = (name, text) =>
    make("li", {}, make("span", { class: `key ${name}`, "aria-hidden": "true" }), text);
  return make(
    "ul",
    { class: "legend", "aria-label": "Key to the pool" },
    item("held", "held by one sequence, to its fill level"),
    item("shared", "shared, with the count"),
    item("cached", "cached, but free"),
    item("free", "free"),
    item("null", "null block"),
    item("gained", "taken or shared in this step"),
    item("lost", "given up"),
    item("written", "written"),
  );
}
