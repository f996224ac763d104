// Figures of the whole gateway, read from its /metrics: Prometheus' text.

import { readKey, request } from "./api.js";
import { figureRow } from "./figures.js";
import { milliseconds } from "./timing.js";

const PREFIX = "trimodal_gateway_";
const REFUSALS = [401, 403, 404];
let refused = null; // the key that was refused, or "" where there are no figures without one

// Shows nothing where the gateway has no figures or this caller may not see them.
export async function showMetrics() {
  const key = readKey();
  if (refused === key) return;
  let families;
  try {
    families = parse(await (await request("metrics")).text());
  } catch (error) {
    if (REFUSALS.includes(error.status)) refused = key; // others pass: a limit, a busy proxy
    document.getElementById("server-figures").hidden = true;
    return;
  }
  const count = (name) => sum(families.get(PREFIX + name) ?? []);
  const told = [`${sum(toModels(families, "requests_total"))} requests to models`];
  // The look at these figures is itself in flight.
  told.push(`${count("refusals_total")} refusals`, `${Math.max(0, count("in_flight") - 1)} in flight`);
  document.getElementById("server-counts").textContent = told.join(", ");
  document.getElementById("server-rows").replaceChildren(
    quantileRow("first token", toModels(families, "ttft_seconds_bucket")),
    quantileRow("whole answer", toModels(families, "request_seconds_bucket")),
  );
  document.getElementById("server-figures").hidden = false;
}

// Without files of this page, looks at readiness and the like.
function toModels(families, name) {
  return (families.get(PREFIX + name) ?? []).filter(({ labels }) => /model="[^"]/.test(labels));
}

function quantileRow(name, buckets) {
  const shown = [0.5, 0.95].map((share) => {
    const seconds = quantile(buckets, share);
    return seconds === null ? "–" : milliseconds(1000 * seconds);
  });
  return figureRow(name, shown);
}

const sum = (samples) => samples.reduce((total, { value }) => total + value, 0);

// Name → samples { labels, value }.
export function parse(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    if (!name) continue;
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({ labels, value: Number(value) });
  }
  return families;
}

// As Prometheus' histogram_quantile: even within a bucket, the last bound beyond all of them.
export function quantile(samples, share) {
  const counts = new Map();
  for (const { labels, value } of samples) {
    const bound = /le="([^"]+)"/.exec(labels)?.[1];
    const upper = bound === "+Inf" ? Infinity : Number(bound);
    counts.set(upper, (counts.get(upper) ?? 0) + value);
  }
  const bounds = [...counts.keys()].sort((a, b) => a - b);
  const total = counts.get(Infinity) ?? 0;
  if (!total) return null;
  let below = 0;
  let lower = 0;
  for (const upper of bounds) {
    const count = counts.get(upper);
    if (count >= share * total) {
      if (upper === Infinity) return lower;
      return lower + ((upper - lower) * (share * total - below)) / (count - below);
    }
    below = count;
    lower = upper;
  }
  return lower;
}
