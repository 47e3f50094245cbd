// The horizontal axis that the timeline and the charts share: steps, or seconds when two runs are compared in time.

class Axis {
  constructor() {
    this.inTime = false;
    this.end = 1; // the end of the longest run in the page, so that two runs have one scale
  }

  fit(runs, inTime) {
    this.inTime = inTime;
    this.end = Math.max(...runs.map((run) => (inTime ? run.times[run.numSteps] : run.numSteps)), 1e-9);
  }

  /** Where a step ends, as a share of the axis. */
  at(run, step) {
    return Math.min(1, Math.max(0, (this.inTime ? run.times[step] : step) / this.end));
  }

  /** The step at a share of the axis. */
  step(run, share) {
    const value = Math.min(1, Math.max(0, share)) * this.end;
    return this.inTime ? run.stepAt(value) : Math.min(run.numSteps, Math.round(value));
  }

  label(value) {
    if (!this.inTime) return whole.format(Math.round(value));
    return this.end < 1 ? `${(1000 * value).toFixed(0)} ms` : `${value.toFixed(this.end < 10 ? 1 : 0)} s`;
  }
}

/** Round numbers from 0 to the end, at most `most` of them. */
function ticks(end, most) {
  const rough = end / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let i = 0; i * step <= end * (1 + 1e-9); i += 1) found.push(i * step);
  return found;
}
