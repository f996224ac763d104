// Draws a turn: the question with its files, the answer, how it ended, where its time went.

import { playable } from "../audio/wave.js";
import { copyButton, make, waterfall } from "../figures.js";
import { milliseconds, perSecond } from "../timing.js";
import { showText } from "./text.js";

const SHOWN_LABELS = 3;

export class TurnView {
  // `again` is called when the reader wants the answer anew, with true to have it go on where it ended.
  constructor(turn, again) {
    this.turn = turn;
    this.element = make("li", "turn");
    this.question = make("article", "question");
    this.question.setAttribute("aria-label", "Question");
    this.words = make("p");
    this.found = make("div", "found");
    this.question.append(...questionParts(turn.question, this.words), this.found);
    this.answer = make("article", "answer");
    this.answer.setAttribute("aria-label", "Answer");
    this.text = make("div", "text");
    this.end = make("div", "end");
    this.answer.append(this.text, this.end);
    if (turn.forgotten) this.element.append(make("p", "hint", `This tab's storage had no room for ${older(turn.forgotten)}.`));
    this.element.append(this.question, this.answer);
    this.again = again;
    this.update();
  }

  // While text streams in, the page is drawn once a frame at most.
  changed(then) {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.update();
      then();
    });
  }

  update() {
    const { question, answer } = this.turn;
    this.words.hidden = !question.text;
    if (this.words.textContent !== question.text) this.words.textContent = question.text; // else marked words stay
    this.answer.setAttribute("aria-busy", String(answer.state === "waiting"));
    this.answer.dataset.state = answer.state;
    showText(this.text, answer.text);
    this.found.replaceChildren(...foundParts(answer.note));
    this.end.replaceChildren(...endParts(this.turn, this.again));
  }
}

const older = (count) => (count === 1 ? "an older question" : `${count} older questions`);

function questionParts({ picture, recording, lost }, words) {
  const parts = [];
  if (picture) {
    const image = make("img", "picture");
    image.src = picture.url;
    image.alt = `Picture ${picture.name}`;
    parts.push(image);
  }
  if (recording) parts.push(playButton(recording));
  parts.push(words);
  if (lost) parts.push(make("p", "hint", `The ${lost} did not fit into this tab's storage.`));
  return parts;
}

function playButton(recording) {
  const button = make("button", "play", `Play ${recording.seconds.toFixed(1)} s`);
  button.type = "button";
  button.addEventListener("click", () => {
    const sound = new Audio(playable(recording.data));
    sound.addEventListener("ended", () => URL.revokeObjectURL(sound.src));
    sound.play();
  });
  return button;
}

// What the server heard and saw in the question's files.
function foundParts(note) {
  const parts = [];
  if (note?.heard) parts.push(pair("heard", note.heard));
  if (note?.labels?.length) {
    const told = note.labels.slice(0, SHOWN_LABELS);
    parts.push(pair("seen", told.map(({ label, score }) => `${label} (${score.toFixed(2)})`).join(", ")));
  }
  return parts;
}

function pair(name, value) {
  const line = make("p", "pair");
  line.append(make("span", "name", name), " ", make("span", "value", value));
  return line;
}

function endParts({ question, answer }, again) {
  const parts = [];
  if (answer.state === "waiting") {
    if (!answer.text) parts.push(make("p", "waiting", "Waiting for the first token"));
    return parts;
  }
  const tools = make("p", "mark acts");
  if (answer.state !== "done") {
    tools.classList.add(answer.state);
    tools.append(answer.state === "stopped" ? "Stopped." : answer.error, button("Try again", () => again(false)));
  }
  if (answer.finish === "length") parts.push(make("p", "mark", "The limit of tokens was reached."));
  // Models of pictures and recordings always answer a question anew.
  const goesOn = answer.text && !question.picture && !question.recording && !question.lost;
  if (goesOn && (answer.finish === "length" || answer.state !== "done")) tools.append(button("Continue", () => again(true)));
  if (answer.text) tools.append(...copyButton(() => answer.text));
  if (tools.hasChildNodes()) parts.push(tools);
  if (answer.leftOut) {
    const lost = `The talk is too long for the model: its oldest ${answer.leftOut} messages were left out.`;
    parts.push(make("p", "hint trimmed", lost));
  }
  if (answer.timing) parts.push(figures(answer));
  return parts;
}

function button(text, act) {
  const element = make("button", "quiet", text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

function figures({ timing, usage, note }) {
  const details = make("details", "timing");
  const line = make("summary");
  const hit = note?.cache && note.cache !== "miss";
  const first = milliseconds(timing.ttft);
  line.append(make("span", "item", timing.spoken ? `first text ${first} after speech` : `TTFT ${first}`));
  if (timing.rate !== null) line.append(make("span", "item", `${perSecond(timing.rate)} tokens/s`));
  line.append(make("span", "item", `${timing.tokens} ${timing.tokens === 1 ? "token" : "tokens"}`));
  line.append(hit ? make("span", "item hit", `${note.cache} cache hit`) : make("span", "item miss", "not cached"));
  details.append(line, waterfall(timing));
  details.addEventListener("toggle", () => details.open && details.scrollIntoView({ block: "nearest" }));
  const reused = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const prompt = `${usage?.prompt_tokens ?? "–"} prompt tokens`;
  details.append(make("p", "hint", reused ? `${prompt}, ${reused} of them reused` : prompt));
  return details;
}
