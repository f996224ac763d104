// The status panel: whether the gateway and its models answer, and the figures of this page's requests.

import { readKey, Refusal, request } from "./api.js";
import { figureRow, make, waterfall } from "./figures.js";
import { askForKey } from "./key.js";
import { showMetrics } from "./metrics.js";
import { milliseconds, percentile, perSecond } from "./timing.js";

const WELL_MS = 5000;
const UNWELL_MS = 1500;
const PATIENCE_MS = 4000;
const STATES = {
  ready: ["Ready", ""],
  part: ["Partly ready", "Not ready: "],
  waiting: ["Not ready", "The model server does not answer. This page tries again; what you typed is kept."],
  gone: ["No gateway", "The gateway does not answer. This page tries again; what you typed is kept."],
};

const readiness = document.getElementById("readiness");
const banner = document.getElementById("banner");
const models = document.getElementById("models");
let timer = null;
let told = {}; // of each model, whether it answers; empty where none does
let mayAsk = true; // for the key, by itself: until the user says no

export function startStatus() {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) check();
  });
  check();
}

// Looks now, and again after a while; less often while all is well, not at all in a hidden tab.
export async function check() {
  clearTimeout(timer);
  const { state, models: found = {} } = await look();
  const answers = state === "ready" || state === "part";
  if (state !== readiness.dataset.state || JSON.stringify(found) !== JSON.stringify(told)) {
    told = found;
    show(state);
    if (answers) await showModels();
  }
  if (answers) await showMetrics();
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(check, state === "ready" ? WELL_MS : UNWELL_MS);
}

async function look() {
  try {
    const response = await fetch("ready?any=1", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!response.ok) return { state: "waiting" };
    const { models: found } = await response.json();
    return { state: Object.values(found).every(Boolean) ? "ready" : "part", models: found };
  } catch {
    return { state: "gone" };
  }
}

function show(state) {
  const [word, sentence] = STATES[state];
  readiness.dataset.state = state;
  readiness.firstElementChild.textContent = word;
  const missing = Object.keys(told).filter((name) => !told[name]);
  banner.hidden = !sentence;
  banner.textContent = state === "part" ? `${sentence}${missing.join(", ")}. The other models answer.` : sentence;
  if (state === "waiting" || state === "gone") for (const item of models.children) item.dataset.state = state;
}

// `ask`: whether to ask for a key where one is needed.
export async function showModels(ask = mayAsk) {
  mayAsk = ask;
  let found;
  const key = readKey();
  try {
    found = (await (await request("v1/models")).json()).data;
  } catch (error) {
    if (!(error instanceof Refusal && error.status === 401)) return; // the next look tells
    models.replaceChildren(make("li", "hint", "Shown to callers with a key."));
    // A key that another question brought meanwhile is tried before asking again.
    if (readKey() !== key || (mayAsk && (mayAsk = await askForKey()))) await showModels();
    return;
  }
  const items = found.map(({ id }) => {
    const item = make("li", "", id);
    item.dataset.state = told[id] === false ? "waiting" : "ready"; // Triton lists models whose process died
    return item;
  });
  models.replaceChildren(...items);
}

// Percentiles over all answers that this tab still shows.
export function showFigures(turns) {
  const all = turns.map(({ answer }) => answer.timing).filter(Boolean);
  const timings = all.filter(({ spoken }) => !spoken); // theirs begin when somebody stops speaking
  const last = document.getElementById("last-request");
  if (all.length) last.replaceChildren(waterfall(all.at(-1)));
  else last.textContent = "Nothing was asked yet.";
  document.getElementById("figures-count").textContent = timings.length ? `of ${timings.length}` : "none yet";
  const rows = [
    ["first token", "ttft", milliseconds, 95],
    ["whole answer", "total", milliseconds, 95],
    ["tokens/s", "rate", perSecond, 5], // more is better: what 95 % of the answers reach
  ].map(([name, field, shown, tail]) => {
    const values = timings.map((timing) => timing[field]).filter((value) => value !== null);
    return figureRow(name, [50, tail].map((percent) => shown(percentile(values, percent))));
  });
  document.getElementById("figures").replaceChildren(...rows);
}
