// The live tab: microphone -> server -> packets, some of them lost -> speech again, heard as soon as it is there.
// Sample n that comes back is sample n that was sent, and both are timed on the clock of one AudioContext.

import { byId, css, openMicrophone, show, sized } from "./common.js";

const LEAD = 0.06; // s that playing waits at first, and after it has run dry
const LATE = 2; // s after which something is wrong
const HINT = "Wear headphones, or the microphone hears the loudspeaker.";
const ENDING = "The end is being played; Stop cuts it off.";
const SHOWN = 8; // s of packets in the picture
const WINDOW = 2; // s over which bits are counted

let model = null;
let call = null;

class Call {
  constructor(context, stream, socket, packetMs) {
    Object.assign(this, { context, stream, socket, packetMs });
    this.packets = [];
    this.firstFrame = null; // of the microphone, on the clock of the context
    this.played = 0; // samples that came back
    this.next = 0; // when the next of them sounds
    this.trips = [];
    this.began = performance.now();
    this.stopped = null; // when the caller stopped to speak
    this.complete = false; // all that was spoken has come back
    this.volume = context.createGain();
    this.volume.connect(context.destination);
    this.volume.gain.value = byId("call-hear").checked ? 1 : 0;
  }

  /** A block of the microphone. */
  send({ first, block }) {
    if (this.stopped !== null || this.socket.readyState !== WebSocket.OPEN) return;
    this.firstFrame ??= first;
    this.socket.send(block.buffer);
    byId("call-level").value = Math.max(...block.map(Math.abs)) / 32768;
  }

  packet(facts) {
    this.packets.push({ ...facts, at: performance.now() / 1000 });
  }

  /** Speech that came back: sounds where the last ended, or a little later if that is past. */
  play(samples) {
    const { context } = this;
    const buffer = context.createBuffer(1, samples.length, model.sample_rate);
    buffer.copyToChannel(Float32Array.from(samples, (value) => value / 32768), 0);
    if (this.next < context.currentTime) this.next = context.currentTime + LEAD;
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.volume);
    source.start(this.next);
    const spoken = this.firstFrame / context.sampleRate + this.played / model.sample_rate;
    this.trips.push(this.next - spoken);
    this.played += samples.length;
    this.next += buffer.duration;
  }

  get trip() {
    const last = this.trips.slice(-25).sort((a, b) => a - b);
    return last.length ? last[last.length >> 1] : null;
  }

  /** Speak no more; what is under way still comes back. */
  stop() {
    this.stopped = performance.now();
    this.stream.getTracks().forEach((track) => track.stop());
    this.socket.send(JSON.stringify({ stop: true }));
    byId("call-level").value = 0;
  }

  close() {
    this.stream.getTracks().forEach((track) => track.stop());
    this.socket.close();
    this.context.close();
  }
}

// A call

async function start() {
  show(byId("message"));
  byId("call").disabled = true;
  let stream = null;
  try {
    stream = await openMicrophone();
    await connect(stream);
  } catch (error) {
    stream?.getTracks().forEach((track) => track.stop());
    fail(error.message);
  }
  byId("call").disabled = false;
}

async function connect(stream) {
  const { context, microphone } = await listen(stream);
  const address = new URL("/api/demo/live", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  const packetMs = Number(byId("call-packet").value);
  const own = new Call(context, stream, socket, packetMs);
  socket.addEventListener("open", () => {
    socket.send(JSON.stringify({ sample_rate: context.sampleRate, packet_ms: packetMs, ...wishes() }));
    microphone.port.onmessage = ({ data }) => own.send(data);
  });
  socket.addEventListener("message", ({ data }) => (typeof data === "string" ? hear(own, JSON.parse(data)) : own.play(new Int16Array(data))));
  socket.addEventListener("close", ({ code }) => {
    if (own !== call) return;
    if (code !== 1000 && byId("message").hidden) fail("The line to the server broke.");
    if (!own.complete) return end();
    const left = own.next - context.currentTime; // s that are still to be heard
    setTimeout(() => own === call && end(), 1000 * Math.max(0, left));
  });
  call = own;
  showCall();
  requestAnimationFrame(watch);
}

/** The microphone at the model's rate where the browser can do that, else at its own. */
async function listen(stream) {
  for (const options of [{ sampleRate: model.sample_rate }, {}]) {
    const context = new AudioContext(options);
    try {
      await context.audioWorklet.addModule("/static/capture.js");
      const source = context.createMediaStreamSource(stream);
      const microphone = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
      source.connect(microphone);
      await context.resume();
      return { context, microphone };
    } catch (error) {
      await context.close();
      if (!options.sampleRate) throw new Error(`The microphone cannot be heard: ${error.message}`);
    }
  }
}

function hear(own, facts) {
  if (facts.error) fail(facts.error);
  else if (facts.latency_ms) byId("call-latency").textContent = `${Math.round(facts.latency_ms)} ms`;
  else if ("bits" in facts) own.packet(facts);
  else if (facts.end) own.complete = true;
}

/** The first time what was spoken is played to its end, the second time it is cut off. */
function hangUp() {
  if (call.stopped !== null || call.socket.readyState !== WebSocket.OPEN) end();
  else call.stop();
}

function end() {
  call?.close();
  call = null;
  showCall();
}

const wishes = () => ({
  ...(model.fixed_rate ? {} : { bitrate: Number(byId("call-bitrate").value) }),
  loss: Number(byId("call-loss").value) / 100,
});

function turned() {
  showDials();
  if (call?.socket.readyState === WebSocket.OPEN) call.socket.send(JSON.stringify(wishes()));
}

// What is seen

function fail(text) {
  show(byId("message"), text, true);
}

function showCall() {
  byId("call").classList.toggle("recording", Boolean(call));
  byId("call").querySelector("span").textContent = call ? "Stop" : "Speak";
  byId("call-packet").disabled = Boolean(call);
  if (call) return;
  byId("call-level").value = 0;
  byId("call-hint").textContent = HINT;
}

function showDials() {
  byId("call-bitrate-value").textContent = byId("call-bitrate").value;
  byId("call-loss-value").textContent = byId("call-loss").value;
}

function watch() {
  if (!call) return;
  const now = performance.now() / 1000;
  const recent = call.packets.filter(({ at }) => at > now - WINDOW);
  const seconds = recent.reduce((sum, { steps }) => sum + steps, 0) / model.frame_rate;
  const lost = call.packets.filter((packet) => packet.lost).length;
  byId("call-rate").textContent = seconds ? `${Math.round(recent.reduce((sum, { bits }) => sum + bits, 0) / seconds)} bits/s` : "–";
  byId("call-packets").textContent = call.packets.length;
  byId("call-lost").textContent = call.packets.length ? `${lost}, ${Math.round((100 * lost) / call.packets.length)} %` : "–";
  byId("call-trip").textContent = call.trip === null ? "–" : `${Math.round(1000 * call.trip)} ms`;
  byId("call-hint").textContent = hint(call);
  byId("call-time").textContent = `${(((call.stopped ?? performance.now()) - call.began) / 1000).toFixed(1)} s`;
  draw(call, now);
  requestAnimationFrame(watch);
}

function hint({ stopped, trip }) {
  if (stopped !== null) return ENDING;
  return trip > LATE ? `The server is ${Math.round(trip)} s behind: it computes more slowly than you speak.` : HINT;
}

function draw({ packets, packetMs }, now) {
  const { context, width, height } = sized(byId("call-bits"));
  context.clearRect(0, 0, width, height);
  const wide = ((packetMs / 1000) * width) / SHOWN;
  const shown = packets.filter(({ at }) => at > now - SHOWN - 1);
  const most = Math.max(64, ...shown.map(({ bits }) => bits)) * 1.1;
  const last = packets.length - 1;
  context.fillStyle = context.strokeStyle = css("--content");
  shown.forEach((packet) => {
    const tall = (packet.bits / most) * (height - 8);
    const x = width - (last - packet.packet + 1) * wide;
    if (packet.lost) context.strokeRect(x + 1, height - tall + 0.5, Math.max(1, wide - 2), tall);
    else context.fillRect(x + 0.5, height - tall, Math.max(1, wide - 1), tall);
  });
  context.fillStyle = css("--muted");
  context.font = "11px system-ui, sans-serif";
  context.fillText(`${Math.round(most)} bits`, 4, 12);
}

// Wiring

function showTab(name) {
  for (const tab of ["recording", "live"]) {
    byId(tab).hidden = tab !== name;
    byId(`tab-${tab}`).setAttribute("aria-pressed", tab === name);
  }
  byId("keys").hidden = name === "live";
  show(byId("message"));
  if (name !== "live") end();
  history.replaceState(null, "", name === "live" ? "#live" : location.pathname);
}

/** Show the tab, for a server that has told about its model. */
export function prepareLive(described) {
  model = described;
  byId("tabs").hidden = false;
  if (location.hash === "#live") showTab("live");
  const { bitrate, fixed_rate: fixed, live } = model;
  const slider = byId("call-bitrate");
  [slider.min, slider.max, slider.value] = [bitrate.lowest, bitrate.highest, bitrate.default];
  byId("call-bitrate-low").textContent = bitrate.lowest;
  byId("call-bitrate-high").textContent = bitrate.highest;
  for (const ms of live.packets_ms) byId("call-packet").add(new Option(`${ms} ms`, ms, ms === 80, ms === 80));
  byId("call-loss").max = byId("call-loss-high").textContent = 100 * live.max_loss;
  const ready = !live.obstacle;
  show(byId("live-obstacle"), live.obstacle ? `No live speech with this model: ${live.obstacle}.` : "");
  byId("call").disabled = byId("call-loss").disabled = !ready;
  slider.disabled = !ready || fixed;
  if (ready) byId("call-latency").textContent = `${Math.round(live.latency_ms + 80)} ms`;
  showDials();
}

byId("tab-recording").addEventListener("click", () => showTab("recording"));
byId("tab-live").addEventListener("click", () => showTab("live"));
byId("call").addEventListener("click", () => (call ? hangUp() : start()));
byId("call-bitrate").addEventListener("input", turned);
byId("call-loss").addEventListener("input", turned);
byId("call-packet").addEventListener("change", (event) => (byId("call-latency").textContent = `${Math.round(model.live.latency_ms + Number(event.target.value))} ms`));
byId("call-hear").addEventListener("change", (event) => call && (call.volume.gain.value = event.target.checked ? 1 : 0));
