// Runs beside the page, on the audio thread: the microphone's samples in blocks of about 20 ms, as 16-bit numbers.

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Int16Array(Math.round(sampleRate / 50));
    this.filled = 0;
  }

  process([[samples]]) {
    if (!samples) return true;
    for (let i = 0; i < samples.length; i++) {
      this.block[this.filled++] = Math.max(-32768, Math.min(32767, Math.round(samples[i] * 32767)));
      if (this.filled < this.block.length) continue;
      const first = currentFrame + i + 1 - this.block.length;
      this.port.postMessage({ first, block: this.block.slice() });
      this.filled = 0;
    }
    return true;
  }
}

registerProcessor("capture", Capture);
