// Calls the gateway: the key, failures as two kinds of errors, server-sent events.

import { forget, read, store } from "./storage.js";

const KEY = "trimodal.key";
let key = read(KEY) ?? "";

// In this tab only, and gone with it.
export const readKey = () => key;

export function keepKey(given) {
  key = given;
  if (given) store(KEY, given);
  else forget(KEY);
}

// The gateway answered, and refused.
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// Nobody answered, or the answer broke off.
export class Unreachable extends Error {}

// Paths are relative to the page, which may stand behind a proxy under a path of its own.
export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("The gateway does not answer.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  let message = `The gateway answered ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // A proxy's own page: the status has to do.
  }
  return new Refusal(String(message), response.status);
}

// The data of each event of a stream, as text. Comments are left out.
export async function* events(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Unreachable("The connection was lost.");
      }
      if (piece.done) return;
      rest += decoder.decode(piece.value, { stream: true });
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the loop may have been left early
  }
}
