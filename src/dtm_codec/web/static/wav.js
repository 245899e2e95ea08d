// Any sound the browser can decode, as mono 16-bit WAV at the model's rate: the server needs no other decoder.

/** Decode, mix to mono, resample, cut to `seconds`. */
export async function toWav(bytes, sampleRate, seconds) {
  const probe = new OfflineAudioContext(1, 1, sampleRate);
  const sound = await probe.decodeAudioData(bytes); // also resamples to the context's rate
  const length = Math.max(1, Math.min(sound.length, Math.floor(seconds * sampleRate)));
  const context = new OfflineAudioContext(1, length, sampleRate);
  const source = context.createBufferSource();
  source.buffer = sound;
  source.connect(context.destination);
  source.start();
  const mono = await context.startRendering();
  return { wav: encodeWav(mono.getChannelData(0), sampleRate), cut: sound.length > length };
}

const LOST_SECONDS = 0.1; // as in speech/audio.py

/** What to say of a WAV file that is shorter than its header promises; undefined for any other file. */
export function breaksOff(bytes) {
  const view = new DataView(bytes);
  const name = (at) => String.fromCharCode(...new Uint8Array(bytes, at, 4));
  if (bytes.byteLength < 12 || name(0) !== "RIFF" || name(8) !== "WAVE") return undefined;
  let bytesPerSecond = 0;
  for (let at = 12; at + 8 <= bytes.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    if (name(at) === "fmt " && at + 20 <= bytes.byteLength) bytesPerSecond = view.getUint32(at + 16, true);
    if (name(at) === "data") {
      const [there, promised] = [bytes.byteLength - at - 8, size].map((count) => count / bytesPerSecond);
      const known = size < 0x7fff0000; // larger numbers are written by programs that do not know the length
      if (!known || !(there < promised - LOST_SECONDS)) return undefined;
      return `The file breaks off: ${there.toFixed(2)} s of ${promised.toFixed(2)} s are there.`;
    }
    at += 8 + size + (size % 2);
  }
  return undefined;
}

/** Mono samples -> a 16-bit WAV file */
export function encodeWav(samples, sampleRate) {
  const bytes = new ArrayBuffer(44 + 2 * samples.length);
  const view = new DataView(bytes);
  const text = (at, value) => [...value].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // mono
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, 2 * sampleRate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, i) => view.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(value * 32767))), true));
  return bytes;
}
