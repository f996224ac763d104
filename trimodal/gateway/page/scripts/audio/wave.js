// Sound as the server takes it: 16 kHz, 16 bits, one channel.

export const RATE = 16000;
const ZEROS = 12; // of the filter's wave on either side: more are sharper and cost more
const STEPS = 256; // of the filter's table between two samples of the input

// Changes the rate of a stream of float samples to 16 kHz with a windowed sinc, which keeps out what
// 16 kHz cannot hold: without it a voice's high notes would come back as low ones.
export class Resampler {
  constructor(rate) {
    this.step = rate / RATE;
    const cutoff = 0.94 * Math.min(1, 1 / this.step);
    this.half = Math.ceil(ZEROS * Math.max(1, this.step));
    this.table = new Float32Array(this.half * STEPS + 2);
    for (let index = 0; index < this.table.length; index += 1) {
      const x = index / STEPS;
      const angle = Math.PI * cutoff * x;
      const window = 0.5 + 0.5 * Math.cos((Math.PI * Math.min(x, this.half)) / this.half);
      this.table[index] = cutoff * window * (x ? Math.sin(angle) / angle : 1);
    }
    this.rest = new Float32Array(this.half); // silence before the first sample
    this.next = this.half; // of the next output, counted in samples of `rest`
  }

  push(block) {
    if (this.step === 1) return block;
    const input = new Float32Array(this.rest.length + block.length);
    input.set(this.rest);
    input.set(block, this.rest.length);
    const output = [];
    for (; this.next + this.half < input.length; this.next += this.step) output.push(this.at(input));
    const used = Math.max(0, Math.floor(this.next) - this.half);
    this.rest = input.slice(used);
    this.next -= used;
    return Float32Array.from(output);
  }

  at(input) {
    let sum = 0;
    const last = Math.floor(this.next + this.half);
    for (let index = Math.max(0, Math.ceil(this.next - this.half)); index <= last; index += 1) {
      sum += input[index] * this.table[Math.round(Math.abs(index - this.next) * STEPS)];
    }
    return sum;
  }
}

export function pcm16(samples) {
  const result = new Int16Array(samples.length);
  samples.forEach((sample, index) => {
    result[index] = Math.round(Math.max(-1, Math.min(1, sample)) * 32767);
  });
  return result;
}

// A WAV file of float blocks, as base64.
export function wave(blocks) {
  const bytes = 2 * blocks.reduce((sum, block) => sum + block.length, 0);
  const header = new DataView(new ArrayBuffer(44));
  const text = (offset, word) => [...word].forEach((c, i) => header.setUint8(offset + i, c.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, 36 + bytes, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true); // the rest of this part
  header.setUint16(20, 1, true); // PCM
  header.setUint16(22, 1, true); // channels
  header.setUint32(24, RATE, true);
  header.setUint32(28, 2 * RATE, true); // bytes a second
  header.setUint16(32, 2, true); // bytes a frame
  header.setUint16(34, 16, true); // bits
  text(36, "data");
  header.setUint32(40, bytes, true);
  return base64(new Blob([header, ...blocks.map(pcm16)]));
}

export function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}

// An address under which this page can play a WAV file.
export function playable(data) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: "audio/wav" }));
}
