// Asks for the API key.

import { keepKey, readKey } from "./api.js";

const dialog = document.getElementById("key-dialog");
const input = document.getElementById("key-input");
const problem = document.getElementById("key-problem");
let answer = null;

// Resolves to whether a key was given. Questions that come while the dialog is open share its answer.
// `refused`: the gateway has just answered 401.
export function askForKey(refused = true) {
  const wrong = refused && readKey() !== "";
  document.getElementById("key-reason").textContent = wrong
    ? "The key that this tab has is not known, or was revoked."
    : "This gateway lets callers in by key.";
  if (answer) return answer.promise;
  answer = {};
  answer.promise = new Promise((resolve) => {
    answer.resolve = resolve;
  });
  input.value = readKey();
  problem.textContent = "";
  dialog.showModal();
  input.select();
  return answer.promise;
}

function close(given) {
  dialog.close();
  input.value = "";
  answer?.resolve(given);
  answer = null;
}

dialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = input.value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    problem.textContent = key ? "A key has letters, digits and signs of ASCII only." : "Enter a key.";
    return;
  }
  keepKey(key);
  close(true);
});
dialog.addEventListener("cancel", (event) => {
  event.preventDefault();
  close(false);
});
document.getElementById("key-cancel").addEventListener("click", () => close(false));
document.getElementById("key-forget").addEventListener("click", () => {
  keepKey("");
  close(false);
});
