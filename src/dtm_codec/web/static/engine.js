// The demo's engine on a server: a recording goes up once, then every bitrate asked for comes back as sound and pictures.

import { fromBase64, request } from "./common.js";
import { spectrogramImage } from "./figures.js";
import { prepareLive } from "./live.js";
import { breaksOff, toWav } from "./wav.js";

export function createEngine(player) {
  let model = null;

  const toClip = async (answer) => ({
    id: answer.id,
    seconds: answer.duration_s,
    buffer: await player.decode(fromBase64(answer.audio).buffer),
    image: spectrogramImage(answer.spectrogram),
  });

  return {
    hint: "Drop a file here, record, or use the sample.",
    another: "Drop another file here, or record.",
    accept: "audio/*,video/*",
    privacy: "Recordings stay on the machine that runs this page.",

    async describe() {
      model = await request("/api/demo");
      prepareLive(model);
      return model;
    },

    async sample() {
      return toClip(await request("/api/demo/sample", { method: "POST" }));
    },

    async load(bytes) {
      const { sample_rate: rate, max_seconds: seconds, max_bytes: most } = model;
      let body = bytes;
      let note = breaksOff(bytes);
      try {
        const { wav, cut } = await toWav(bytes.slice(0), rate, seconds);
        body = wav;
        if (cut) note ??= `The first ${seconds} s of it.`;
      } catch {
        if (bytes.byteLength > most)
          throw new Error("This browser cannot read the file, and it is too large to send as it is.");
      }
      const answer = await request("/api/demo/clips", {
        method: "POST",
        body,
        headers: { "Content-Type": "audio/wav" },
      });
      return { ...(await toClip(answer)), note };
    },

    async encode(clip, bitrate) {
      const answer = await request(`/api/demo/clips/${clip.id}/encodings`, { json: { bitrate } });
      const wav = fromBase64(answer.audio);
      return {
        ...answer,
        buffer: await player.decode(wav.buffer.slice(0)),
        image: spectrogramImage(answer.spectrogram),
        dtm: fromBase64(answer.file),
        wav,
      };
    },

    async compare(clip, codec) {
      const { title, bps, audio, spectrogram } = await request(`/api/demo/clips/${clip.id}/comparisons`, { json: { codec } });
      return { title, bps, buffer: await player.decode(fromBase64(audio).buffer), image: spectrogramImage(spectrogram) };
    },
  };
}
