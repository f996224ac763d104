// Live captions: the words of what the microphone hears, as they come.
//
// vLLM's dialect: session.update names the model, a first commit begins, appends carry the sound, a commit
// with `final` ends. Deltas are words that stay, but for a correction once their speaker pauses; what may still
// change is told as a whole each time.

import { LiveSession } from "./live.js";

const HELLO = [
  { type: "session.update", model: "speech", tentative: true },
  { type: "input_audio_buffer.commit" },
];
const END_MS = 10000;
const LISTENING = "Listening";
const IDLE = "Words appear here while you speak.";

const button = document.getElementById("captions-button");
const box = document.getElementById("captions-words");
const text = document.getElementById("captions-text");
const tentative = document.getElementById("captions-tentative");
const gap = document.createTextNode(""); // the guess' first space, if it has one: it is not underlined
const state = document.getElementById("captions-state");
let session = null;
let delta = "";
let correction = null; // in a pause the end of the text becomes another

export function startCaptions() {
  tentative.before(gap);
  button.addEventListener("click", () => (session ? finish() : begin()));
}

async function begin() {
  tell("Opening the microphone");
  button.disabled = true;
  delta = "";
  correction = null;
  if (text.textContent) text.append("\n");
  const mine = (session = new LiveSession("", HELLO, hear, over));
  try {
    await mine.open();
    if (!mine.ended) {
      setRunning(true);
      tell(mine.microphone || LISTENING);
    }
  } catch (error) {
    mine.end(error.message);
  } finally {
    button.disabled = false;
  }
}

function tell(words) {
  state.textContent = words;
}

// The end stays in view, unless the reader has scrolled away from it.
function show(guess) {
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  text.append(delta);
  if (correction) text.textContent = text.textContent.slice(0, -correction.before.length || undefined) + correction.text;
  delta = "";
  correction = null;
  tentative.textContent = guess.trimStart();
  gap.data = guess.slice(0, guess.length - tentative.textContent.length);
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function setRunning(running) {
  button.setAttribute("aria-pressed", String(running));
  button.textContent = running ? "Stop" : "Start";
}

function hear(event) {
  if (event.type === "transcription.delta") {
    delta = event.delta;
  } else if (event.type === "transcription.corrected") {
    correction = event;
    if (!delta) show(gap.data + tentative.textContent); // behind a delta the guess follows
  } else if (event.type === "transcription.tentative") {
    show(event.text); // one follows each delta: shown together, no word flickers
  } else if (event.type === "transcription.done") {
    session.end(IDLE);
  } else if (event.type === "microphone") {
    tell(event.words || LISTENING);
  } else if (event.type === "error") {
    session.end(String(event.error?.message ?? event.error));
  }
}

// Asks for the last words; the server's "done" ends the session.
function finish() {
  const mine = session;
  if (mine.muted) return;
  mine.mute();
  tell("Waiting for the last words");
  mine.send({ type: "input_audio_buffer.commit", final: true });
  setTimeout(() => mine.end("The last words did not come."), END_MS);
}

function over(words) {
  session = null;
  show("");
  setRunning(false);
  tell(words);
}
