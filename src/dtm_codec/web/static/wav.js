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
