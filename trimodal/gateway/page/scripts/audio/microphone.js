// Opens the microphone and gives its sound as float samples at 16 kHz.

import { Resampler } from "./wave.js";

const WORKLET = new URL("./worklet.js", import.meta.url);

// Calls `take` with each block, and `changed` with a sentence, empty where all is well again, and whether no more
// sound will come. Resolves to what closes the microphone; throws Error with a sentence.
export async function openMicrophone(take, changed) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("Browsers give the microphone to pages of https or localhost only.");
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  } catch (error) {
    throw new Error(REASONS[error.name] ?? "The microphone cannot be opened.");
  }
  const [track] = stream.getAudioTracks();
  track.addEventListener("ended", () => changed("The microphone was lost.", true)); // not when it is closed here
  const muted = () => changed("The microphone is muted.", false);
  track.addEventListener("mute", muted);
  track.addEventListener("unmute", () => changed("", false));
  let context;
  const close = () => {
    for (const track of stream.getTracks()) track.stop();
    if (context && context.state !== "closed") context.close();
  };
  try {
    // At the device's own rate: not every browser converts the rate of a microphone.
    context = new AudioContext();
    await context.audioWorklet.addModule(WORKLET);
    const resampler = new Resampler(context.sampleRate);
    const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    capture.port.addEventListener("message", ({ data }) => take(resampler.push(data)));
    capture.port.start();
    context.createMediaStreamSource(stream).connect(capture);
    await context.resume();
    if (track.muted) muted(); // from the beginning: no event tells it
  } catch {
    close();
    throw new Error("This browser cannot record sound.");
  }
  return close;
}

const REASONS = {
  NotAllowedError: "The microphone is not allowed for this page.",
  NotFoundError: "There is no microphone.",
  NotReadableError: "Another program holds the microphone.",
};
