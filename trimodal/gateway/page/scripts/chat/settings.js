// What all questions of this tab are asked with: a system prompt, a temperature.

import { forget, read, store } from "../storage.js";

const SETTINGS = "trimodal.settings";
const system = document.getElementById("system");
const temperature = document.getElementById("temperature");

// temperature: null for the model's own.
export function readSettings() {
  const given = temperature.value.trim();
  const usable = given && temperature.validity.valid;
  return { system: system.value.trim(), temperature: usable ? Number(given) : null };
}

export function startSettings() {
  try {
    const kept = JSON.parse(read(SETTINGS)) ?? {};
    system.value = kept.system ?? "";
    temperature.value = kept.temperature ?? "";
  } catch {
    forget(SETTINGS);
  }
  const panel = document.getElementById("settings");
  const mark = () => panel.classList.toggle("set", Boolean(system.value.trim() || temperature.value.trim()));
  panel.addEventListener("input", () => {
    store(SETTINGS, JSON.stringify(readSettings()));
    mark();
  });
  mark();
}
