// Live captions: the microphone's sound to /v1/realtime, and the words that come back, as they come.
//
// vLLM's dialect: session.update names the model, a first commit begins, appends carry the sound, a commit
// with `final` ends. Deltas are words that do not change any more; what may still change is told as a whole
// each time.

import { readKey, request } from "../api.js";
import { askForKey } from "../key.js";
import { openMicrophone } from "./microphone.js";
import { pcm16, RATE } from "./wave.js";

const MODEL = "speech";
const SEND_SAMPLES = RATE / 10; // a message every 100 ms
const MAX_WAITING_BYTES = 10 * RATE * 2 * (4 / 3); // of base64 for 10 s
const END_MS = 10000;

const button = document.getElementById("captions-button");
const box = document.getElementById("captions-words");
const text = document.getElementById("captions-text");
const tentative = document.getElementById("captions-tentative");
const gap = document.createTextNode(""); // the guess' first space, if it has one: it is not underlined
const state = document.getElementById("captions-state");
let session = null;

export function startCaptions() {
  tentative.before(gap);
  button.addEventListener("click", () => (session ? session.finish() : begin()));
}

async function begin() {
  tell("Opening the microphone");
  button.disabled = true;
  try {
    session = new Session();
    await session.open();
  } catch (error) {
    session.end(error.message);
  } finally {
    button.disabled = false;
  }
}

function tell(words) {
  state.textContent = words;
}

// The end stays in view, unless the reader has scrolled away from it.
function show(delta, guess) {
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  text.append(delta);
  tentative.textContent = guess.trimStart();
  gap.data = guess.slice(0, guess.length - tentative.textContent.length);
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function setRunning(running) {
  button.setAttribute("aria-pressed", String(running));
  button.textContent = running ? "Stop" : "Start";
}

class Session {
  constructor() {
    this.blocks = [];
    this.count = 0;
    this.delta = "";
    this.begun = false;
    this.ended = false;
    if (text.textContent) text.append("\n");
  }

  async open() {
    this.closeMicrophone = await openMicrophone((block) => this.take(block));
    await this.connect();
    setRunning(true);
    tell("Listening");
  }

  // Resolves when the server has begun the session.
  connect() {
    const url = new URL("v1/realtime", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    // Browsers cannot set headers here; the key goes where OpenAI's browser clients put it.
    const key = readKey();
    this.socket = new WebSocket(url, ["realtime", ...(key ? [`openai-insecure-api-key.${key}`] : [])]);
    return new Promise((resolve, reject) => {
      this.socket.addEventListener("message", ({ data }) => {
        if (!this.begun) {
          this.begun = true;
          this.send({ type: "session.update", model: MODEL, tentative: true });
          this.send({ type: "input_audio_buffer.commit" });
          resolve();
        }
        this.hear(JSON.parse(data));
      });
      this.socket.addEventListener("close", () => {
        if (this.begun) this.end("The connection was lost.");
        else explain().then((words) => reject(new Error(words)));
      });
    });
  }

  send(event) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  take(block) {
    if (this.ended || this.finishing) return;
    this.blocks.push(block);
    this.count += block.length;
    if (this.count >= SEND_SAMPLES && this.begun) this.flush();
    if (this.socket?.bufferedAmount > MAX_WAITING_BYTES) this.end("The connection is too slow for sound.");
  }

  flush() {
    for (const block of this.blocks) {
      const bytes = new Uint8Array(pcm16(block).buffer);
      this.send({ type: "input_audio_buffer.append", audio: btoa(String.fromCharCode(...bytes)) });
    }
    this.blocks = [];
    this.count = 0;
  }

  hear(event) {
    if (event.type === "transcription.delta") {
      this.delta = event.delta;
    } else if (event.type === "transcription.tentative") {
      show(this.delta, event.text); // one follows each delta: shown together, no word flickers
      this.delta = "";
    } else if (event.type === "transcription.done") {
      this.end("Words appear here while you speak.");
    } else if (event.type === "error") {
      this.end(String(event.error?.message ?? event.error));
    }
  }

  // Asks for the last words; the server's "done" ends the session.
  finish() {
    if (this.finishing) return;
    this.flush();
    this.finishing = true;
    this.closeMicrophone();
    tell("Waiting for the last words");
    this.send({ type: "input_audio_buffer.commit", final: true });
    setTimeout(() => this.end("The last words did not come."), END_MS);
  }

  end(words) {
    if (this.ended) return;
    this.ended = true;
    session = null;
    this.closeMicrophone?.();
    this.socket?.close();
    show(this.delta, "");
    setRunning(false);
    tell(words);
  }
}

// Browsers do not tell a page why a socket was refused: an ordinary request does.
async function explain() {
  try {
    await request("v1/models");
    return "This gateway has no live captions.";
  } catch (error) {
    if (error.status === 401 && (await askForKey())) return "Start again with the new key.";
    return error.message;
  }
}
