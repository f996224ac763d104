// A spoken conversation: turns begin and end by ear, and who speaks interrupts the answer.
//
// OpenAI's dialect of /v1/realtime. Where the server has the model "turn", it hears the end of a turn; else a
// silence is the end, and the status panel says so. The server begins answers early by itself.

import { LiveSession } from "../audio/live.js";
import { tell } from "./composer.js";
import { rate } from "../timing.js";
import { readSettings } from "./settings.js";
import { addTurn, words } from "./talk.js";

const TRANSCRIPTION = "input_audio_transcription";
const HEARD = `conversation.item.${TRANSCRIPTION}`;
const INPUT = { format: { type: "audio/pcm", rate: 16000 }, turn_detection: { type: "semantic_vad" } };
const NEEDED = ["session.update", "input_audio_buffer.append"]; // where one is refused, nothing is heard
const SPEAK = "Speak. Speaking again interrupts the answer.";
const turnEnds = document.getElementById("turn-ends");
const hearing = document.getElementById("hearing");

// Resolves to a sentence when it is over. `changed` is called with each turn that is new or has changed.
export function converse(signal, changed) {
  let done;
  const end = new Promise((resolve) => {
    done = resolve;
  });
  const talk = new Conversation(changed, done);
  signal.addEventListener("abort", () => talk.session.end(""));
  tell(SPEAK);
  talk.session.open().catch((error) => talk.session.end(error.message)); // may ask the user, who may stop it
  return end;
}

class Conversation {
  constructor(changed, done) {
    this.changed = changed;
    this.done = done;
    this.said = new Map(); // by the item: what is not answered yet
    this.current = null; // whose answer is under way
    const session = {
      type: "realtime",
      instructions: readSettings().system,
      include: [`item.${TRANSCRIPTION}.tentative`],
      audio: { input: INPUT },
    };
    const hello = [{ type: "session.update", session }, ...earlier()];
    this.session = new LiveSession("?model=llm", hello, (event) => this.hear(event), (words) => this.over(words));
  }

  hear(event) {
    const now = performance.now();
    if (event.type === "session.updated") {
      const note = event.session.trimodal?.turn_detection;
      turnEnds.textContent = note ?? "By ear: the model turn hears when you have finished (semantic_vad).";
    } else if (event.type === "input_audio_buffer.speech_started") {
      this.said.set(event.item_id, { text: "", guess: "" });
      if (this.problem) tell(SPEAK);
      this.problem = null;
    } else if (event.type === "response.created") {
      this.begin();
    } else if (event.type === "response.output_text.delta" && this.current) {
      this.settle();
      this.current.first ??= now;
      this.current.turn.answer.text += event.delta;
      this.changed(this.current.turn);
    } else if (event.type === "response.done" && this.current) {
      this.finish(event.response, now);
    } else if (event.type === "microphone") {
      tell(event.words || SPEAK);
    } else if (event.type === "error") {
      this.problem = String(event.error?.message ?? event.error);
      tell(this.problem);
      if (NEEDED.includes(event.error?.event_id)) this.session.end(this.problem);
    } else if (this.said.has(event.item_id)) {
      this.listen(this.said.get(event.item_id), event, now);
    }
    this.showWords();
  }

  listen(said, event, now) {
    if (event.type === "input_audio_buffer.speech_stopped") {
      Object.assign(said, { end: this.session.at(event.audio_end_ms), stopped: now });
    } else if (event.type === `${HEARD}.delta`) {
      said.text += event.delta;
    } else if (event.type === `${HEARD}.corrected`) {
      said.text = said.text.slice(0, said.text.length - event.before.length) + event.text;
    } else if (event.type === `${HEARD}.tentative`) {
      said.guess = event.text;
    } else if (event.type === `${HEARD}.completed` && event.transcript) {
      Object.assign(said, { text: event.transcript, guess: "", known: now });
      if (this.current?.first === null) this.ask();
    } else if (event.type === `${HEARD}.completed` || event.type === `${HEARD}.failed`) {
      this.said.delete(event.item_id);
    }
  }

  begin() {
    this.current = { turn: addTurn({ text: "" }), first: null };
    this.ask();
  }

  // What was heard is the question, and what is heard until the answer's first text belongs to it.
  ask() {
    const heard = [...this.said.values()].filter(({ known }) => known);
    Object.assign(this.current, heard.at(-1));
    this.current.turn.question.text = heard.map(({ text }) => text.trim()).join(" ");
    this.changed(this.current.turn);
  }

  // What is heard later, and does not interrupt, is a listener's "mhm": nothing answers it.
  settle() {
    this.said.forEach(({ known }, id) => known && this.said.delete(id));
  }

  finish(response, now) {
    this.settle();
    const { turn, first, end } = this.current;
    const { answer } = turn;
    const { status, usage } = response;
    if (status === "cancelled") Object.assign(answer, { state: "interrupted", error: "Interrupted." });
    else if (status === "failed") {
      const error = response.status_details?.error?.message ?? this.problem;
      Object.assign(answer, { state: answer.text ? "cut" : "failed", error });
    } else {
      answer.state = "done";
      if (status === "incomplete") answer.finish = "length";
      answer.note = response.trimodal;
      answer.leftOut = response.trimodal?.trimmed?.messages;
    }
    if (first !== null && usage) {
      answer.usage = {
        prompt_tokens: usage.input_tokens,
        prompt_tokens_details: { cached_tokens: usage.input_token_details.cached_tokens },
      };
      if (end) answer.timing = timing(this.current, usage.output_tokens, now);
    }
    this.current = null;
    this.changed(turn);
  }

  over(words) {
    if (this.current) {
      const { turn } = this.current;
      Object.assign(turn.answer, words ? { state: "cut", error: words } : { state: "stopped" });
      this.changed(turn);
    }
    this.said.clear();
    this.showWords();
    this.done(words && (this.problem ?? words));
  }

  // The words of what is not answered yet.
  showWords() {
    const left = [...this.said.values()].filter(({ known }) => !known || !this.current);
    const words = left.map(({ text, guess }) => (text + guess).trim()).join(" ").trim();
    hearing.hidden = !words;
    hearing.textContent = words;
  }
}

// The talk so far.
function earlier() {
  return words().map(({ role, text }) => {
    const content = [{ type: role === "user" ? "input_text" : "output_text", text }];
    return { type: "conversation.item.create", item: { type: "message", role, content } };
  });
}

// From the end of speech: how long it took to be sure of the end, to know the words, to answer.
function timing({ end, stopped, known, first }, tokens, now) {
  const total = now - end;
  const seen = Math.max(known, stopped);
  return {
    spoken: true,
    total,
    ttft: first - end,
    rate: rate(tokens, now - first),
    tokens,
    parts: [
      ["end of turn", stopped - end],
      ["last words", seen - stopped],
      ["first text", Math.max(0, first - seen)],
      ["tokens", now - first],
    ],
  };
}
