// Questions to begin with: words, a sample photo, a sample recording. A click asks.

import { base64 } from "../audio/wave.js";
import { request } from "../api.js";
import { make } from "../figures.js";
import { tell } from "./composer.js";

const SAMPLES = "page/samples/";

// `ask` takes a question, as of the composer.
export function startSuggestions(ask) {
  for (const button of document.querySelectorAll("#suggestions button")) {
    const { picture, recording, seconds } = button.dataset;
    const text = recording ? "" : button.textContent;
    if (picture) {
      const image = make("img");
      image.src = SAMPLES + picture;
      image.alt = "";
      button.prepend(image);
    }
    button.addEventListener("click", async () => {
      button.disabled = true; // while the sample is fetched: one click, one question
      tell("");
      try {
        ask({
          text,
          picture: picture ? { name: picture, url: `data:image/jpeg;base64,${await load(picture)}` } : null,
          recording: recording ? { data: await load(recording), seconds: Number(seconds) } : null,
        });
      } catch (error) {
        tell(error.message);
        if (error.status === 404) return; // there is no sample: it stays disabled
      }
      button.disabled = false;
    });
  }
}

async function load(name) {
  const response = await request(SAMPLES + name);
  return base64(await response.blob());
}
