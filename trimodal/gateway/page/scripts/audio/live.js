// A session of /v1/realtime: the microphone's sound goes there as it comes, events come back.

import { readKey, request } from "../api.js";
import { askForKey } from "../key.js";
import { openMicrophone } from "./microphone.js";
import { pcm16, RATE } from "./wave.js";

const SEND_SAMPLES = RATE / 10; // a message every 100 ms
const RECENT_MS = 3000;
const MAX_WAITING_BYTES = 10 * RATE * 2 * (4 / 3); // of base64 for 10 s

export class LiveSession {
  // `hello`: the events that are sent first. `hear` is called with each event, of the microphone also with
  // { type: "microphone", words } (empty: it is well again), `over` once, with a sentence.
  constructor(query, hello, hear, over) {
    Object.assign(this, { query, hello, hear, over, blocks: [], count: 0, taken: 0, origins: [] });
    this.begun = this.ended = this.muted = false;
    this.microphone = ""; // what is wrong with it
  }

  // Throws Error with a sentence.
  async open() {
    this.closeMicrophone = await openMicrophone((block) => this.take(block), (words, over) => {
      if (over) this.end(words);
      else if (!this.ended && !this.muted) this.hear({ type: "microphone", words: (this.microphone = words) });
    });
    if (this.ended) return this.closeMicrophone();
    await this.connect();
  }

  // When the sample of this time of the session was spoken, by the page's clock. Blocks may be late, so the
  // earliest says it; after a gap of the microphone only those since then do.
  at(audioMs) {
    return Math.min(...this.origins.map(({ origin }) => origin)) + audioMs;
  }

  // Resolves when the server has begun the session.
  connect() {
    const url = new URL(`v1/realtime${this.query}`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    // Browsers cannot set headers here; the key goes where OpenAI's browser clients put it.
    const key = readKey();
    this.socket = new WebSocket(url, ["realtime", ...(key ? [`openai-insecure-api-key.${key}`] : [])]);
    return new Promise((resolve, reject) => {
      this.socket.addEventListener("message", ({ data }) => {
        if (!this.begun) {
          this.begun = true;
          this.hello.forEach((event) => this.send(event));
          resolve();
        }
        if (!this.ended) this.hear(JSON.parse(data));
      });
      this.socket.addEventListener("close", () => {
        if (this.ended) resolve();
        else if (this.begun) this.end("The connection was lost.");
        else explain().then((words) => reject(new Error(words)));
      });
    });
  }

  // An error names by `event_id` what was refused.
  send(event) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify({ event_id: event.type, ...event }));
  }

  take(block) {
    if (this.ended || this.muted) return;
    this.taken += block.length;
    const now = performance.now();
    this.origins.push({ now, origin: now - (1000 * this.taken) / RATE });
    while (now - this.origins[0].now > RECENT_MS) this.origins.shift();
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

  // Sends the rest of the sound, and no more.
  mute() {
    this.flush();
    this.muted = true;
    this.closeMicrophone();
  }

  end(words) {
    if (this.ended) return;
    this.ended = true;
    this.closeMicrophone?.();
    this.socket?.close();
    this.over(words);
  }
}

// Browsers do not tell a page why a socket was refused: an ordinary request does.
async function explain() {
  try {
    await request("v1/models");
    return "Live sound is refused: the key may not use the model, a limit is reached, or a proxy takes no sockets.";
  } catch (error) {
    if (error.status === 401 && (await askForKey())) return "Start again with the new key.";
    return error.message;
  }
}
