// Recording on the demo page: the button, how loud it is, and how long it lasts.

import { byId, openMicrophone } from "./common.js";

let recorder = null;

/** Begin a recording of at most so many seconds, or end the one under way, which `take` then gets as a Blob. */
export async function toggleRecording(seconds, begun, take) {
  if (recorder) return recorder.stop();
  const stream = await openMicrophone();
  begun();
  const level = watchLevel(stream, seconds);
  const parts = [];
  recorder = new MediaRecorder(stream);
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  recorder.addEventListener("stop", () => {
    clearTimeout(limit);
    level.stop();
    stream.getTracks().forEach((track) => track.stop());
    const blob = new Blob(parts, { type: recorder.mimeType });
    recorder = null;
    showRecording(false);
    take(blob);
  });
  const limit = setTimeout(() => recorder?.stop(), 1000 * seconds);
  recorder.start();
  showRecording(true);
}

function showRecording(on) {
  byId("record").classList.toggle("recording", on);
  byId("record").querySelector("span").textContent = on ? "Stop" : "Record";
  byId("level").hidden = !on;
}

/** How loud it is and how long it lasts, until `stop`. */
function watchLevel(stream, seconds) {
  const context = new AudioContext();
  const ear = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(ear);
  const samples = new Float32Array(ear.fftSize);
  const began = performance.now();
  let going = true;
  const look = () => {
    if (!going) return;
    ear.getFloatTimeDomainData(samples);
    byId("level").value = samples.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    byId("source-hint").textContent = `Recording, ${((performance.now() - began) / 1000).toFixed(1)} of ${seconds} s`;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  return {
    stop() {
      going = false;
      context.close();
    },
  };
}
