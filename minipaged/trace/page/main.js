// The start: reads the traces, goes through the runs, and puts the player and the views onto the page.

function begin() {
  const runs = readTraces().map((trace) => new Run(trace));
  const axis = new Axis();
  axis.fit(runs, false);
  const player = new Player(runs, axis);
  player.views = runs.map((run, number) => new View(run, runs, axis, number, player));
  const main = document.querySelector("main");
  document.querySelector(".top").append(player.bar);
  main.classList.add(runs.length > 1 ? "two" : "one");
  main.replaceChildren(...player.views.map((view) => view.root));
  player.readAddress();
  player.redraw();
  document.addEventListener("keydown", (event) => player.key(event));
  // Take the new address from the event, because by now the page may have written another one.
  window.addEventListener("hashchange", (event) => player.readAddress(event.newURL));
  window.addEventListener("resize", () => player.redraw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => player.redraw());
  const print = (isPrinted) => {
    for (const view of player.views) view.all = isPrinted;
    player.redraw();
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  exposeShown(player);
}

/** `window.replay`, for tests and curious readers. It tells the page's position and what its canvases show. Read only.
 *
 *  replay.step(i): the step that run i shows.
 *  replay.pool(i): the pool's cells as they were painted: {block, filled, refCnt, owners, cached, mark}; the regions
 *    of a contiguous cache: {start, numSlots, numAllocated, requestId, seqId, filled}.
 *  replay.place(block, i): where a block's cell is in the window: {x, y} of its middle.
 *  replay.draw(position): draws a step at once, and returns the milliseconds that it took, layout included.
 */
function exposeShown(player) {
  const view = (i) => player.views[i ?? 0];
  window.replay = Object.freeze({
    step: (i) => view(i).run.trace.steps[view(i).number].number,
    pool: (i) => structuredClone(view(i).pool?.shown ?? []),
    place(block, i) {
      const { canvas, size } = view(i).pool;
      const [x, y] = view(i).pool.place(block);
      const box = canvas.getBoundingClientRect();
      return { x: box.left + x + size / 2 - 1, y: box.top + y + size / 2 - 1 };
    },
    draw(position) {
      const before = performance.now();
      player.goTo(position);
      player.draw();
      document.body.getBoundingClientRect();
      return performance.now() - before;
    },
  });
}

begin();
