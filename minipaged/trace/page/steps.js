// The traces in this page, each with its events grouped by steps.
//
// A trace is in the page as {name, remark, texts, engine, events}: what to call it, what is missing at its end,
// whether it has texts, and its events as in a trace file. Step s has the events after the end of step s - 1 up to
// its own end. Events after the last step, such as an abort, make one more step.

function readTraces() {
  const elements = document.querySelectorAll('script.trace[type="application/json"]');
  return Array.from(elements, (element) => groupBySteps(JSON.parse(element.textContent)));
}

function groupBySteps(trace) {
  const steps = [{ number: 0, time: 0, events: [] }];
  let events = [];
  for (const event of trace.events) {
    events.push(event);
    if (event.event === "StepFinished") {
      steps.push({ number: event.step, time: event.time, events });
      events = [];
    }
  }
  if (events.length) {
    const last = steps[steps.length - 1];
    const time = Math.max(last.time, ...events.map((event) => event.time ?? 0));
    steps.push({ number: last.number, time, events, isAfter: true });
  }
  return { ...trace, events: null, steps };
}
