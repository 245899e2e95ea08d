// Several recordings of one length, played in lockstep: all run, one is heard, so switching keeps the instant.

const FADE = 0.01; // s: short enough to feel instant, long enough not to click
const LEAD = 0.02; // s from asking to sounding, so that all sources start on one sample

export class Player extends EventTarget {
  constructor() {
    super();
    this.context = new AudioContext();
    this.volume = this.context.createGain();
    this.seam = this.context.createGain(); // dips where a loop jumps back
    this.seam.connect(this.volume).connect(this.context.destination);
    this.buffers = [];
    this.voices = [];
    this.selected = 0;
    this.loops = false;
    this.region = [0, 0];
    this.offset = 0;
    this.startedAt = null; // on the audio clock; null while paused
    this.nextSeam = 0;
  }

  decode(bytes) {
    return this.context.decodeAudioData(bytes);
  }

  get playing() {
    return this.startedAt !== null;
  }

  get duration() {
    return this.buffers.length ? Math.min(...this.buffers.map((buffer) => buffer.duration)) : 0;
  }

  /** Seconds into the recordings, now. */
  get position() {
    if (!this.playing) return this.offset;
    const now = this.offset + Math.max(0, this.context.currentTime - this.startedAt);
    const [start, end] = this.region;
    if (!this.loops || now < end) return Math.min(now, this.duration);
    return start + ((now - start) % (end - start));
  }

  /** New recordings; playback stops. */
  load(buffers) {
    this.pause();
    this.buffers = buffers;
    this.selected = 0;
    this.offset = 0;
    this.region = [0, this.duration];
  }

  /** Replace one recording by another version of it; playback goes on where it is. */
  replace(index, buffer) {
    this.#around(() => {
      this.buffers[index] = buffer;
    });
  }

  async play() {
    if (this.playing || !this.buffers.length) return;
    await this.context.resume();
    if (this.playing) return;
    const [start, end] = this.region;
    if (this.loops ? this.offset < start || this.offset >= end : this.offset >= this.duration - 0.01) this.offset = start;
    this.#start();
    this.#changed();
  }

  pause() {
    if (!this.playing) return;
    this.offset = this.position;
    this.#stop();
    this.#changed();
  }

  toggle() {
    return this.playing ? this.pause() : this.play();
  }

  seek(seconds) {
    this.#around(() => {
      this.offset = Math.max(0, Math.min(seconds, this.duration));
    });
  }

  select(index) {
    if (index === this.selected || !(index in this.buffers)) return;
    this.selected = index;
    this.#blend();
    this.#changed();
  }

  setLoop(loops, start = 0, end = this.duration) {
    this.#around(() => {
      this.loops = loops;
      this.region = [start, end];
      if (loops && (this.offset < start || this.offset >= end)) this.offset = start;
    });
  }

  setVolume(gain) {
    this.volume.gain.setTargetAtTime(gain, this.context.currentTime, FADE);
  }

  #around(change) {
    const wasPlaying = this.playing;
    this.offset = this.position;
    if (wasPlaying) this.#stop();
    change();
    if (wasPlaying) this.#start();
    this.#changed();
  }

  #start() {
    const when = this.context.currentTime + LEAD;
    const [start, end] = this.region;
    this.voices = this.buffers.map((buffer, index) => {
      const source = this.context.createBufferSource();
      const gain = this.context.createGain();
      source.buffer = buffer;
      source.loop = this.loops;
      source.loopStart = start;
      source.loopEnd = end;
      gain.gain.value = index === this.selected ? 1 : 0;
      source.connect(gain).connect(this.seam);
      source.start(when, this.offset);
      return { source, gain };
    });
    this.startedAt = when;
    this.nextSeam = when + end - this.offset;
    this.seam.gain.cancelScheduledValues(0);
    this.seam.gain.setValueAtTime(1, this.context.currentTime);
    if (!this.loops) this.voices[0].source.onended = () => this.#ended();
    this.#watch(this.voices);
  }

  #stop() {
    for (const { source, gain } of this.voices) {
      source.onended = null;
      gain.gain.setTargetAtTime(0, this.context.currentTime, FADE / 3);
      source.stop(this.context.currentTime + 2 * FADE);
    }
    this.voices = [];
    this.startedAt = null;
  }

  #ended() {
    this.#stop();
    this.offset = 0;
    this.#changed();
  }

  #blend() {
    const now = this.context.currentTime;
    this.voices.forEach(({ gain }, index) => {
      gain.gain.cancelScheduledValues(now);
      gain.gain.setValueAtTime(gain.gain.value, now);
      gain.gain.linearRampToValueAtTime(index === this.selected ? 1 : 0, now + FADE);
    });
  }

  /** Report the position once a frame, and fade around the next jump of a loop before it comes. */
  #watch(voices) {
    if (voices !== this.voices) return;
    const [start, end] = this.region;
    const now = this.context.currentTime;
    while (this.nextSeam - FADE < now) this.nextSeam += Math.max(end - start, FADE); // after a rest in the background
    if (this.loops && this.nextSeam - now < 0.3 && end - start > 4 * FADE) {
      const { gain } = this.seam;
      gain.setValueAtTime(1, this.nextSeam - FADE);
      gain.linearRampToValueAtTime(0, this.nextSeam);
      gain.linearRampToValueAtTime(1, this.nextSeam + FADE);
      this.nextSeam += end - start;
    }
    this.dispatchEvent(new Event("position"));
    requestAnimationFrame(() => this.#watch(voices));
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
    this.dispatchEvent(new Event("position"));
  }
}
