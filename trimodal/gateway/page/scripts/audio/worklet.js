// Hands the microphone's samples to the page in blocks. It runs on the browser's audio thread.

const BLOCK = 1024;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(BLOCK);
    this.filled = 0;
  }

  process([channels]) {
    const samples = channels[0];
    if (!samples) return true; // the source has not begun
    for (let index = 0; index < samples.length; index += 1) {
      this.block[this.filled] = samples[index];
      this.filled += 1;
      if (this.filled === BLOCK) {
        this.port.postMessage(this.block, [this.block.buffer]);
        this.block = new Float32Array(BLOCK);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
