// Records one question.

import { openMicrophone } from "./microphone.js";
import { RATE, wave } from "./wave.js";

// People let go of the button while their last word still sounds, or is on its way through the system.
const TAIL_MS = 200;
const MAX_S = 60; // what the assistant takes

// Begins at once. `told` is called with the seconds so far and the level, 0 to 1, of the last block; `changed` as
// openMicrophone calls it.
// `opened` fails where there is no microphone; `end()` resolves to { data, seconds }, or null without sound.
export function record(told, changed) {
  const blocks = [];
  let count = 0;
  const take = (block) => {
    const heard = block.subarray(0, MAX_S * RATE - count);
    if (!heard.length) return;
    blocks.push(heard);
    count += heard.length;
    told(count / RATE, level(heard));
    if (count === MAX_S * RATE) changed(`A question is at most ${MAX_S} s long.`, false);
  };
  const opened = openMicrophone(take, changed);
  const end = async () => {
    if (count) await new Promise((resolve) => setTimeout(resolve, TAIL_MS));
    const close = await opened.catch(() => null);
    close?.();
    if (!count) return null;
    return { data: await wave(blocks), seconds: count / RATE };
  };
  return { opened, end };
}

// Root mean square over a range that suits speech: −60 dB is silence, −12 dB is loud.
function level(block) {
  let sum = 0;
  for (const sample of block) sum += sample * sample;
  const decibels = 10 * Math.log10(sum / block.length + 1e-12);
  return Math.min(1, Math.max(0, (decibels + 60) / 48));
}
