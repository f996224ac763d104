// The talk of this tab: its turns, what of them the API gets, and their copy that outlives a reload.
//
// A turn: { question: { text, picture, recording }, answer: { text, state, error, note, usage, timing } }
// picture: { name, url }, recording: { data, seconds }; state: waiting, done, stopped, interrupted, cut or failed.

const TURNS = "trimodal.turns";
const DRAFT = "trimodal.draft";
// Files are stored beside the turns, once each: the turns are stored again and again while an answer comes.
const CONTENTS = { picture: "url", recording: "data" };
const fileKey = (kind, index) => `trimodal.${kind}.${index}`;

export const turns = load();

export function addTurn(question) {
  const turn = { question, answer: { text: "", state: "waiting" } };
  for (const [kind, field] of Object.entries(CONTENTS)) {
    if (question[kind]) store(fileKey(kind, turns.length), question[kind][field]);
  }
  turns.push(turn);
  keep();
  return turn;
}

export function clearTurns() {
  for (const kind of Object.keys(CONTENTS)) {
    turns.forEach((turn, index) => sessionStorage.removeItem(fileKey(kind, index)));
  }
  turns.length = 0;
  keep();
}

function store(name, text) {
  try {
    sessionStorage.setItem(name, text);
  } catch {
    sessionStorage.removeItem(name); // full, a few megabytes: what does not fit is missing after a reload
  }
}

let left = false;

// A page that goes away ends its requests: that must not be kept as their end.
window.addEventListener("pagehide", () => {
  keep();
  left = true;
});
window.addEventListener("pageshow", () => {
  left = false;
});

export function keep() {
  if (left) return;
  const bare = turns.map(({ question: { text, picture, recording, lost }, answer }) => ({
    question: {
      text,
      lost,
      picture: picture && { name: picture.name },
      recording: recording && { seconds: recording.seconds },
    },
    answer,
  }));
  store(TURNS, JSON.stringify(bare));
}

function load() {
  let found;
  try {
    found = JSON.parse(sessionStorage.getItem(TURNS)) ?? [];
  } catch {
    return [];
  }
  found.forEach(({ question, answer }, index) => {
    for (const [kind, field] of Object.entries(CONTENTS)) {
      if (!question[kind]) continue;
      const contents = sessionStorage.getItem(fileKey(kind, index));
      question[kind] = contents && { ...question[kind], [field]: contents };
      if (!contents) question.lost = question.lost ? `${question.lost} and ${kind}` : kind;
    }
    if (answer.state === "waiting") {
      answer.state = "cut";
      answer.error = "Cut off when the page was loaded again.";
    }
  });
  return found;
}

export const readDraft = () => sessionStorage.getItem(DRAFT) ?? "";
export const keepDraft = (text) => sessionStorage.setItem(DRAFT, text);

// What one request may hold. Of what it holds the model leaves out more where that is too long for it.
const MOST = { turns: 500, text: 200_000, files: 16_000_000 };
// A longer talk goes without its oldest turns, so many at once: its beginning is in the model's prefix cache.
const STEP = 16;

// The messages of the API up to this turn, and how many older ones are left out. A question that was never
// answered is no part of it: models are trained on turns that alternate.
export function messages(turn) {
  const answered = turns.slice(0, turns.indexOf(turn)).filter(({ answer }) => answer.text);
  const sizes = answered.map(size);
  let from = 0;
  while (Object.keys(MOST).some((name) => sum(sizes.slice(from), name) > MOST[name])) from += STEP;
  const said = answered.slice(from).flatMap(({ question, answer }) => [
    { role: "user", content: content(question) },
    { role: "assistant", content: answer.text },
  ]);
  const leftOut = 2 * Math.min(from, answered.length);
  return { messages: [...said, { role: "user", content: content(turn.question) }], leftOut };
}

// The talk in words, for a session that takes no files anew: what was heard stands for its recording.
export function words() {
  return turns.filter(({ answer }) => answer.text).slice(-MOST.turns).flatMap(({ question, answer }) => {
    const file = question.lost ?? (question.recording ? "recording" : "picture");
    return [
      { role: "user", text: question.text || answer.note?.heard || `(a ${file})` },
      { role: "assistant", text: answer.text },
    ];
  });
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
