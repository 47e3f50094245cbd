// The player: the page's position in the run. Slider, buttons, keys and the address move it, and the views follow.
//
// A position is a step. If two runs are compared in time, it is one of the moments at which a step of either run ended.
// The address contains the position as #step=12 or #time=0.0345.

const SPEEDS = [1, 2, 5, 10, 30];
const ICONS = {
  first: "M2 3h2v10H2zM14 3v10L5 8z",
  back: "M12 3v10L4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M3.5 3h3v10h-3zM9.5 3h3v10h-3z",
  forward: "M4 3v10l8-5z",
  last: "M12 3h2v10h-2zM2 3v10l9-5z",
};

class Player {
  constructor(runs, axis) {
    this.runs = runs;
    this.axis = axis;
    this.views = [];
    this.position = 0;
    this.timer = null;
    this.moments = [...new Set(runs.flatMap((run) => run.times))].sort((a, b) => a - b);
    this.slider = make("input", {
      type: "range",
      min: 0,
      step: 1,
      value: 0,
      id: "slider",
      "aria-label": "Step",
      oninput: () => this.goTo(Number(this.slider.value)),
    });
    const button = (name, sign, keys, onclick) =>
      make(
        "button",
        { type: "button", title: `${name} (${keys})`, "aria-label": name, onclick },
        icon(ICONS[sign]),
      );
    this.playButton = button("Play", "play", "space", () => this.toggle());
    this.now = make("output", { class: "now", for: "slider", "aria-live": "polite" });
    this.speed = make(
      "select",
      {
        id: "speed",
        onchange: () => {
          if (this.timer) this.play();
        },
      },
      ...SPEEDS.map((each) => make("option", { value: each, selected: each === 5 }, `${each} / s`)),
    );
    this.mode = make(
      "select",
      { id: "mode", onchange: () => this.setMode(this.mode.value === "time") },
      make("option", { value: "step" }, "in step"),
      make("option", { value: "time" }, "in time"),
    );
    this.theme = make(
      "select",
      { id: "theme", onchange: () => this.setTheme(this.theme.value) },
      ...["auto", "light", "dark"].map((each) => make("option", { value: each }, each)),
    );
    const label = (id, text) => make("label", { for: id }, text);
    this.bar = make(
      "div",
      { class: "transport", role: "toolbar", "aria-label": "Replay" },
      make(
        "div",
        { class: "buttons" },
        button("First step", "first", "Home", () => this.by(-this.position)),
        button("Step back", "back", "←", () => this.by(-1)),
        this.playButton,
        button("Step forward", "forward", "→", () => this.by(1)),
        button("Last step", "last", "End", () => this.by(this.last - this.position)),
      ),
      this.slider,
      this.now,
      make(
        "div",
        { class: "settings" },
        label("speed", "Speed"),
        this.speed,
        ...(runs.length > 1 ? [label("mode", "Compare"), this.mode] : []),
        label("theme", "Theme"),
        this.theme,
      ),
    );
  }

  get last() {
    return this.axis.inTime ? this.moments.length - 1 : Math.max(...this.runs.map((run) => run.numSteps));
  }

  stepOf(run) {
    return this.axis.inTime ? run.stepAt(this.moments[this.position]) : Math.min(this.position, run.numSteps);
  }

  /** Whether a run has ended before this position, which another run still reaches. */
  isPast(run) {
    return this.axis.inTime
      ? this.moments[this.position] > run.times[run.numSteps]
      : this.position > run.numSteps;
  }

  goTo(position) {
    this.position = Math.min(this.last, Math.max(0, Math.round(position)));
    this.requested ??= requestAnimationFrame(() => this.draw());
  }

  by(steps) {
    this.stop();
    this.goTo(this.position + steps);
  }

  /** Goes to a step of one of the runs. */
  goToStep(view, step) {
    this.goTo(this.axis.inTime ? this.moments.indexOf(view.run.times[step]) : step);
  }

  draw() {
    if (this.requested) cancelAnimationFrame(this.requested);
    this.requested = null;
    for (const view of this.views) view.draw(this.stepOf(view.run), this.isPast(view.run));
    this.slider.max = String(this.last);
    this.slider.value = String(this.position);
    const said = this.describe();
    setText(this.now, said);
    this.slider.setAttribute("aria-valuetext", said);
    clearTimeout(this.writing);
    this.writing = setTimeout(() => this.writeAddress(), this.timer ? 500 : 150);
  }

  describe() {
    const [run] = this.runs;
    if (this.axis.inTime) {
      const steps = this.runs.map((each) => `${this.stepOf(each)}`).join(" and ");
      return `${seconds(this.moments[this.position])}, steps ${steps}`;
    }
    const time = this.runs.length > 1 ? "" : `, ${seconds(run.times[this.stepOf(run)])}`;
    const step = run.trace.steps[this.stepOf(run)];
    return step.isAfter ? `after step ${step.number}${time}` : `step ${this.position} of ${this.last}${time}`;
  }

  // Playing

  toggle() {
    if (this.timer) this.stop();
    else this.play();
  }

  play() {
    this.stop();
    if (this.position >= this.last) this.goTo(0);
    const rate = Number(this.speed.value);
    if (this.axis.inTime) {
      // Play advances by equal spans of time, not by equal numbers of moments.
      const each = this.moments[this.last] / this.last;
      let time = this.moments[this.position];
      this.timer = setInterval(() => {
        time += each;
        let to = this.position;
        while (to < this.last && this.moments[to + 1] <= time) to += 1;
        this.advance(to);
      }, 1000 / rate);
    } else this.timer = setInterval(() => this.advance(this.position + 1), 1000 / rate);
    this.showPlaying(true);
  }

  advance(position) {
    this.goTo(position);
    if (position >= this.last) this.stop();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.showPlaying(false);
  }

  showPlaying(isPlaying) {
    this.playButton.replaceChildren(icon(isPlaying ? ICONS.pause : ICONS.play));
    this.playButton.setAttribute("aria-label", isPlaying ? "Pause" : "Play");
    // Screen readers announce each step that the user takes by hand, but not each step that is played.
    for (const element of document.querySelectorAll("[aria-live]"))
      element.setAttribute("aria-live", isPlaying ? "off" : "polite");
  }

  // Keys

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event;
    if (target.matches?.("select, textarea, input:not([type=range])")) return;
    if (target.closest?.(".scroll") && event.key.startsWith("Arrow")) return;
    const isOnControl = target.matches?.("button, summary, a");
    if (event.key === " " && !isOnControl) this.toggle();
    else if (event.key === "ArrowRight") this.by(event.shiftKey ? 10 : 1);
    else if (event.key === "ArrowLeft") this.by(event.shiftKey ? -10 : -1);
    else if (event.key === "Home") this.by(-this.position);
    else if (event.key === "End") this.by(this.last - this.position);
    else return;
    event.preventDefault();
  }

  // The address

  writeAddress() {
    const place = this.axis.inTime
      ? `time=${this.moments[this.position].toFixed(6)}`
      : `step=${this.position}`;
    if (location.hash === `#${place}` || location.protocol === "about:") return;
    try {
      history.replaceState(null, "", `#${place}`);
    } catch {
      // A page in a frame of its own may have no address to write to.
    }
  }

  readAddress(address = location.href) {
    const found = /#(step|time)=([\d.]+)$/.exec(address);
    if (!found) return;
    const value = Number(found[2]);
    if (this.runs.length > 1) this.setMode(found[1] === "time");
    if (!this.axis.inTime) this.goTo(found[1] === "step" ? value : this.runs[0].stepAt(value));
    else this.goTo(this.moments.findLastIndex((moment) => moment <= value + 1e-6));
  }

  // Settings

  setMode(inTime) {
    if (inTime === this.axis.inTime) return;
    const [run] = this.runs;
    const step = this.stepOf(run);
    this.axis.fit(this.runs, inTime);
    this.mode.value = inTime ? "time" : "step";
    for (const view of this.views) view.measure();
    this.goTo(inTime ? this.moments.indexOf(run.times[step]) : step);
  }

  setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    this.redraw();
  }

  /** After a change of size or colours. */
  redraw() {
    for (const view of this.views) view.measure();
    this.draw();
  }
}

function seconds(time) {
  if (time < 1) return `${(time * 1000).toFixed(1)} ms`;
  return `${time.toFixed(3)} s`;
}
