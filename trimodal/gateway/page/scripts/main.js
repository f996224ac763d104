// Starts the page and runs its questions, one at a time.

import { startCaptions } from "./audio/captions.js";
import { Refusal } from "./api.js";
import { ask } from "./chat/ask.js";
import { BUSY, setBusy, startComposer, tell } from "./chat/composer.js";
import { converse } from "./chat/converse.js";
import { startSettings } from "./chat/settings.js";
import { startSuggestions } from "./chat/suggestions.js";
import { addTurn, clearTurns, keep, turns } from "./chat/talk.js";
import { TurnView } from "./chat/view.js";
import { askForKey } from "./key.js";
import { check, showFigures, showModels, startStatus } from "./status.js";

const KEEP_MS = 300;
const list = document.getElementById("turns");
const scroller = document.getElementById("scroller");
const announcement = document.getElementById("announcement");
const themeButton = document.getElementById("theme-button");
const themeName = themeButton.querySelector("span");
const converseButton = document.getElementById("converse-button");
const views = new Map();
let running = null;
let conversation = null; // is the one that runs, or was
let pinned = true; // the end stays in view until the reader scrolls away from it

function show(turn) {
  const view = new TurnView(turn, (goOn) => running || run(turn, goOn));
  views.set(turn, view);
  list.append(view.element);
}

function question(asked) {
  if (running) return tell(BUSY);
  const turn = addTurn(asked);
  show(turn);
  pinned = true;
  run(turn);
}

async function run(turn, goOn = false) {
  const view = views.get(turn);
  const mine = (running = new AbortController());
  let kept = 0;
  let refused = null;
  setBusy(true);
  showEmpty();
  // The answer is read out when it is whole: a reader that says each token says nothing.
  announcement.textContent = "Waiting for the answer";
  const asking = ask(turn, mine.signal, () => {
    if (mine !== running) return;
    if (performance.now() - kept > KEEP_MS) {
      kept = performance.now();
      keep();
    }
    view.changed(follow);
  }, goOn);
  view.update();
  follow();
  try {
    await asking;
  } catch (error) {
    refused = error;
  }
  if (mine !== running) return; // a new chat was begun meanwhile
  if (refused instanceof Refusal && (await askForKey())) {
    showModels();
    return run(turn, goOn);
  }
  if (refused) Object.assign(turn.answer, { state: "failed", error: refused.message });
  running = null;
  setBusy(false);
  keep();
  view.update();
  follow();
  showFigures(turns);
  announcement.textContent = [turn.answer.text, turn.answer.error].filter(Boolean).join(" ") || "No answer";
  if (turn.answer.state === "failed" || turn.answer.state === "cut") check();
}

const stop = () => running?.abort();

// Until it is stopped. Answers are not read out: the microphone would hear them.
async function talk() {
  if (running) return running === conversation ? stop() : tell(BUSY);
  const mine = (running = conversation = new AbortController());
  const press = (on) => {
    converseButton.setAttribute("aria-pressed", String(on));
    converseButton.classList.toggle("on", on);
  };
  press(true);
  setBusy(true);
  const end = await converse(mine.signal, (turn) => {
    if (mine !== running) return;
    if (!views.has(turn)) show(turn);
    showEmpty();
    if (turn.answer.state !== "waiting") {
      keep();
      showFigures(turns);
    }
    views.get(turn).changed(follow);
  });
  press(false);
  converseButton.blur();
  if (mine !== running) return;
  running = null;
  setBusy(false);
  tell(end);
}

function follow() {
  if (pinned && turns.length) scroller.scrollTop = scroller.scrollHeight;
}

function startScrolling() {
  let before = 0;
  scroller.addEventListener("scroll", () => {
    const { scrollTop, scrollHeight, clientHeight } = scroller;
    const atEnd = scrollHeight - scrollTop - clientHeight < 80;
    pinned = atEnd || (pinned && scrollTop >= before); // downwards it was not the reader, or to the end
    before = scrollTop;
  });
  list.addEventListener("load", follow, true); // pictures have no height before
  new ResizeObserver(follow).observe(scroller);
  follow();
}

function showEmpty() {
  document.getElementById("empty").hidden = turns.length > 0;
}

function newChat() {
  const talking = running === conversation;
  stop();
  if (!talking) running = null; // a conversation ends by itself, at once
  setBusy(false);
  clearTurns();
  views.clear();
  list.replaceChildren();
  showEmpty();
  pinned = true;
  scroller.scrollTop = 0;
  showFigures(turns);
  document.getElementById("question").focus();
}

// Small screens show one view at a time.
function startViews() {
  const buttons = [...document.querySelectorAll(".views button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      document.body.dataset.view = button.dataset.view;
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
    });
  }
}

function startTheme() {
  const order = ["system", "light", "dark"];
  const root = document.documentElement;
  const name = () => {
    const theme = root.dataset.theme ?? "system";
    themeName.textContent = `${theme[0].toUpperCase()}${theme.slice(1)} theme`;
    return theme;
  };
  themeButton.addEventListener("click", () => {
    const next = order[(order.indexOf(name()) + 1) % order.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    name();
    try {
      if (next === "system") localStorage.removeItem("trimodal.theme");
      else localStorage.setItem("trimodal.theme", next);
    } catch {
      // no room, or the user blocks all sites' data: it holds until the page is loaded again
    }
  });
  name();
}

startTheme();
startViews();
turns.forEach(show);
showEmpty();
showFigures(turns);
startScrolling();
startComposer(question, stop);
startSettings();
startSuggestions(question);
startCaptions();
startStatus();
converseButton.addEventListener("click", talk);
document.getElementById("new-talk").addEventListener("click", newChat);
document.getElementById("key-button").addEventListener("click", async () => {
  showModels(await askForKey(false)); // after a no it does not ask again
});
