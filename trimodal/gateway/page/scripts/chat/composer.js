// The box for the next question: its words, its picture, its recording.

import { record } from "../audio/recording.js";
import { make } from "../figures.js";
import { keepDraft, readDraft } from "./talk.js";

const KINDS = ["png", "jpeg", "webp", "gif", "bmp", "tiff", "avif", "heic", "heif"]; // Linux calls HEIC image/heif
const PICTURES = KINDS.map((kind) => `image/${kind}`);
const NAMES = /\.(png|jpe?g|webp|gif|bmp|tiff?|avif|hei[cf])$/i;
const MAX_PICTURE_BYTES = 10_000_000;
const SHORT_S = 0.3;
export const BUSY = "Wait for the answer, or stop it.";

const form = document.getElementById("composer");
const box = document.getElementById("question");
const attachments = document.getElementById("attachments");
const notice = document.getElementById("notice");
const sendButton = document.getElementById("send-button");
const stopButton = document.getElementById("stop-button");

let picture = null;
let busy = false;

// `ask` takes a question; `stop` ends the answer under way.
export function startComposer(ask, stop) {
  const send = (recording = null) => {
    if (busy) return tell(BUSY);
    const text = box.value.trim();
    if (!text && !recording) return tell("Type a question first."); // the assistant takes no picture alone
    tell("");
    ask({ text, picture, recording });
    box.value = "";
    keepDraft("");
    setPicture(null);
    fit();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  box.addEventListener("keydown", (event) => {
    // 229: the Enter that ends an input method's composition
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    send();
  });
  box.addEventListener("input", () => {
    keepDraft(box.value);
    fit();
  });
  stopButton.addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && busy) stop();
  });
  box.value = readDraft();
  fit();
  takePictures();
  holdToTalk(send);
}

export function setBusy(value) {
  busy = value;
  const [shown, hidden] = busy ? [stopButton, sendButton] : [sendButton, stopButton];
  const focused = document.activeElement === hidden;
  shown.hidden = false;
  hidden.hidden = true;
  if (focused) shown.focus();
}

export function tell(text) {
  notice.textContent = text;
}

// As high as its text, up to what the style allows.
function fit() {
  box.style.blockSize = "auto";
  box.style.blockSize = `${box.scrollHeight}px`;
}

function takePictures() {
  const input = document.getElementById("picture-input");
  const drop = document.getElementById("drop");
  document.getElementById("picture-button").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    takeFiles(input.files);
    input.value = ""; // the same file may be chosen again
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    // Cells of a spreadsheet come as text and as a picture of it: text wins, but for a copied file's own name.
    const text = event.clipboardData?.getData("text/plain").trim() ?? "";
    if (!files.length || (text && !files.some(({ name }) => text.endsWith(name)))) return;
    event.preventDefault();
    takeFiles(files);
  });
  const brings = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!brings(event)) return;
    event.preventDefault();
    drop.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.hidden = true; // out of the window
  });
  document.addEventListener("drop", (event) => {
    drop.hidden = true;
    if (!brings(event)) return;
    event.preventDefault();
    takeFiles(event.dataTransfer.files);
  });
}

function takeFiles(files) {
  // Where the system knows no type, as of HEIC outside Apple's, the name has to tell.
  const pictures = [...files].filter(({ type, name }) => (type ? PICTURES.includes(type) : NAMES.test(name)));
  const [file] = pictures;
  if (!file && [...files].some(({ type }) => type.startsWith("audio/"))) {
    return tell("A chat takes pictures. A recording is for /v1/audio/transcriptions, or play it to Captions.");
  }
  if (!file) return tell("A picture is a JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC file.");
  if (file.size > MAX_PICTURE_BYTES) return tell("That picture is larger than 10 MB.");
  const reader = new FileReader();
  reader.addEventListener("load", () => {
    setPicture({ name: file.name, url: reader.result });
    if (pictures.length > 1) tell(`One picture a question: ${file.name} was taken.`);
  });
  reader.addEventListener("error", () => tell("That picture cannot be read."));
  reader.readAsDataURL(file);
}

function setPicture(chosen) {
  picture = chosen;
  tell("");
  attachments.hidden = !picture;
  attachments.replaceChildren();
  if (!picture) return;
  const item = make("li");
  const image = make("img");
  image.src = picture.url;
  image.alt = "";
  const remove = make("button", "quiet", "Remove");
  remove.type = "button";
  remove.setAttribute("aria-label", `Remove ${picture.name}`);
  remove.addEventListener("click", () => {
    setPicture(null);
    box.focus();
  });
  item.append(image, make("span", "file", picture.name), remove);
  attachments.append(item);
  box.focus();
}

function holdToTalk(send) {
  const button = document.getElementById("talk-button");
  const label = button.querySelector("span");
  let holding = null;

  const begin = () => {
    if (holding) return;
    if (busy) return tell(BUSY);
    tell("");
    button.classList.add("on");
    label.textContent = "Listening 0.0 s";
    const mine = (holding = record((seconds, level) => {
      if (holding !== mine) return; // let go of: the tail is still recorded
      label.textContent = `Listening ${seconds.toFixed(1)} s`;
      button.style.setProperty("--level", level.toFixed(3));
    }, (words, over) => {
      if (holding !== mine) return;
      if (over) end(false);
      tell(words);
    }));
    mine.opened.catch((error) => {
      if (holding === mine) end(false);
      tell(error.message);
    });
  };
  const end = async (keep) => {
    if (!holding) return;
    const ending = holding;
    holding = null;
    button.classList.remove("on");
    label.textContent = "Hold to talk";
    const recording = await ending.end();
    if (!keep) return;
    if (!recording || recording.seconds < SHORT_S) return tell("Hold the button while you speak.");
    send(recording);
  };

  button.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    button.setPointerCapture(event.pointerId);
    begin();
  });
  button.addEventListener("pointerup", () => end(true));
  button.addEventListener("pointercancel", () => end(false));
  button.addEventListener("contextmenu", (event) => event.preventDefault()); // a long press on phones
  button.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && holding) {
      event.stopPropagation();
      end(false);
    }
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    if (!event.repeat) begin();
  });
  button.addEventListener("keyup", (event) => {
    if (event.key === " " || event.key === "Enter") end(true);
  });
  button.addEventListener("blur", () => end(false));
  // Assistive technology clicks without pointer or key, and cannot hold: the next click ends it.
  button.addEventListener("click", (event) => {
    if (event.detail === 0) holding ? end(true) : begin();
  });
}
