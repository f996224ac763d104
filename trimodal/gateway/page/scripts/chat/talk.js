// The talk of this tab: its turns, what of them the API gets, and their copy that outlives a reload.
//
// A turn: { question: { text, picture, recording }, answer: { text, state, error, note, usage, timing }, forgotten }
// picture: { name, url, key }, recording: { data, seconds, key }: stored under `key`; state: waiting, done, stopped,
// interrupted, cut or failed; forgotten: how many turns before it the tab had no room for.

import { forget, names, read, store } from "../storage.js";

const TURNS = "trimodal.turns";
const DRAFT = "trimodal.draft";
// Files are stored beside the turns, once each: the turns are stored again and again while an answer comes.
const CONTENTS = { picture: "url", recording: "data" };
const FILES = /^trimodal\.(picture|recording)\./;

export const turns = load();
let from = 0; // the tab has no room for turns before it

export function addTurn(question) {
  const turn = { question, answer: { text: "", state: "waiting" } };
  for (const [kind, field] of Object.entries(CONTENTS)) {
    if (!question[kind]) continue;
    const key = `trimodal.${kind}.${Date.now()}`;
    question[kind] = { ...question[kind], key };
    store(key, question[kind][field]); // what does not fit is missing after a reload
  }
  turns.push(turn);
  keep();
  return turn;
}

export function clearTurns() {
  files().forEach((key) => forget(key));
  turns.length = from = 0;
  keep();
}

// The keys of what is stored beside the turns, the oldest first.
const files = () => names().filter((key) => FILES.test(key)).sort((a, b) => age(a) - age(b));
const age = (key) => Number(key.split(".")[2]);

let left = false;

// A page that goes away ends its requests: that must not be kept as their end.
window.addEventListener("pagehide", () => {
  keep();
  left = true;
});
window.addEventListener("pageshow", () => {
  left = false;
});

// Where there is no room, without the oldest files, then without the oldest turns.
export function keep() {
  if (left) return;
  const bare = turns.map(({ question: { text, picture, recording, lost }, answer }) => ({
    question: {
      text,
      lost,
      picture: picture && { name: picture.name, key: picture.key },
      recording: recording && { seconds: recording.seconds, key: recording.key },
    },
    answer,
  }));
  while (!store(TURNS, JSON.stringify(newest(bare)))) {
    const [oldest] = files();
    if (oldest) forget(oldest);
    else if (from < turns.length) from += 1;
    else return;
  }
}

function newest(bare) {
  const [first, ...others] = bare.slice(from);
  const forgotten = from + (turns[0]?.forgotten ?? 0) || undefined;
  return first ? [{ ...first, forgotten }, ...others] : [];
}

function load() {
  let found;
  try {
    found = JSON.parse(read(TURNS)) ?? [];
  } catch {
    return [];
  }
  for (const { question, answer } of found) {
    for (const [kind, field] of Object.entries(CONTENTS)) {
      if (!question[kind]) continue;
      const contents = read(question[kind].key);
      question[kind] = contents && { ...question[kind], [field]: contents };
      if (!contents) question.lost = question.lost ? `${question.lost} and ${kind}` : kind;
      if (!contents) question.text ||= answer.note?.heard ?? ""; // else the talk would go on from an empty question
    }
    if (answer.state === "waiting") {
      answer.state = "cut";
      answer.error = "Cut off when the page was loaded again.";
    }
  }
  return found;
}

export const readDraft = () => read(DRAFT) ?? "";
export const keepDraft = (text) => store(DRAFT, text);

// What one request may hold. Of what it holds the model leaves out more where that is too long for it.
const MOST = { turns: 500, text: 200_000, files: 16_000_000 };
// A longer talk goes without its oldest turns, so many at once: its beginning is in the model's prefix cache.
const STEP = 16;

// The messages of the API up to this turn, and how many older ones are left out. A question that was never
// answered is no part of it: models are trained on turns that alternate.
export function messages(turn) {
  const answered = turns.slice(0, turns.indexOf(turn)).filter(({ answer }) => answer.text);
  const [asked, ...sizes] = [turn, ...answered].map(size);
  const fits = (name) => sum([...sizes.slice(from), asked], name) <= MOST[name];
  let from = 0;
  while (from < sizes.length && !Object.keys(MOST).every(fits)) from += STEP;
  const said = answered.slice(from).flatMap(({ question, answer }) => [
    { role: "user", content: content(question) },
    { role: "assistant", content: answer.text },
  ]);
  const leftOut = 2 * Math.min(from, answered.length);
  return { messages: [...said, { role: "user", content: content(turn.question) }], leftOut };
}

// The talk in words, for a session that takes no files anew: what was heard stands for its recording.
export function words() {
  return turns.filter(({ answer }) => answer.text).slice(-MOST.turns).flatMap(({ question, answer }) => [
    { role: "user", text: question.text || answer.note?.heard || "(a recording)" },
    { role: "assistant", text: answer.text },
  ]);
}

function size({ question, answer }) {
  const text = new Blob([JSON.stringify([question.text, answer.text])]).size;
  return { turns: 1, text, files: (question.picture?.url ?? "").length + (question.recording?.data ?? "").length };
}

const sum = (sizes, name) => sizes.reduce((total, one) => total + one[name], 0);

function content({ text, picture, recording }) {
  if (!picture && !recording) return text;
  const parts = [];
  if (text) parts.push({ type: "text", text });
  if (picture) parts.push({ type: "image_url", image_url: { url: picture.url } });
  if (recording) parts.push({ type: "input_audio", input_audio: { data: recording.data, format: "wav" } });
  return parts;
}
