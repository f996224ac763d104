// Sends a turn's question, and writes the answer into the turn as it comes.

import { events, Refusal, request } from "../api.js";
import { measure } from "../timing.js";
import { readSettings } from "./settings.js";
import { messages } from "./talk.js";

const MODEL = "llm"; // with pictures or recordings the gateway takes the assistant by itself

// Resolves when the answer has ended, however it did: `turn.answer.state` says. Throws: Refusal 401.
// `goOn`: the answer goes on where it ended.
export async function ask(turn, signal, changed, goOn = false) {
  const begun = goOn ? turn.answer.text : "";
  const answer = (turn.answer = { text: begun, state: "waiting" });
  const times = { sent: performance.now(), first: null, end: 0, tokens: 0, note: {} };
  const { messages: said, leftOut } = messages(turn);
  if (begun) said.push({ role: "assistant", content: begun });
  const { system, temperature } = readSettings();
  if (system) said.unshift({ role: "system", content: system });
  const body = {
    model: MODEL,
    messages: said,
    ...(temperature === null ? {} : { temperature }),
    truncation: "auto", // a talk that is too long for the model loses its oldest turns
    stream: true,
    stream_options: { include_usage: true },
  };
  try {
    const response = await request("v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    for await (const data of events(response)) {
      if (data === "[DONE]") answer.state = "done";
      else take(JSON.parse(data), answer, times);
      changed();
    }
    if (answer.state === "waiting") cut(answer, "The connection was lost.");
  } catch (error) {
    if (error instanceof Refusal && error.status === 401 && answer.text === begun) throw error;
    if (signal.aborted) answer.state = "stopped";
    else cut(answer, error.message);
  }
  if (answer.state === "done") {
    times.end ||= performance.now();
    answer.leftOut = leftOut + (answer.note?.trimmed?.messages ?? 0);
    answer.timing = measure(times);
  }
}

function take(chunk, answer, times) {
  if (chunk.error) throw new Refusal(chunk.error.message, 200);
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) {
    times.first ??= performance.now();
    answer.text += choice.delta.content;
  }
  if (choice?.finish_reason) {
    times.end = performance.now();
    answer.finish = choice.finish_reason;
  }
  if (chunk.trimodal) answer.note = times.note = chunk.trimodal;
  if (chunk.usage) {
    answer.usage = chunk.usage;
    times.tokens = chunk.usage.completion_tokens;
  }
}

function cut(answer, message) {
  answer.state = answer.text ? "cut" : "failed";
  answer.error = message;
}
