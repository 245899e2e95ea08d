// Answers calls of tests, one JSON line each: [name, ...arguments] -> {"value": ...} or {"error": name, "message": ...}.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/codec/${name}.js`));
const [container, tokenCoder, ple, rate, audio] = await Promise.all(
  ["container", "token_coder", "ple", "rate", "audio"].map(load),
);

const wav = await import(pathToFileURL(`${process.argv[2]}/../../static/wav.js`)); // of both pages

const models = new Map();
const model = (name) => (name === null ? null : models.get(name));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const floats = (text) => new Float32Array(new Uint8Array(Buffer.from(text, "base64")).buffer);
const text = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
const maskText = (mask) => [...mask].join("");
const maskOf = (string) => Uint8Array.from(string, Number);

const calls = {
  statistics: (name, { class_of: classOf, transitions, members }) => {
    const made = new tokenCoder.TokenModel(classOf, transitions.flat(), members);
    models.set(name, made);
    return made.fingerprint;
  },
  read: (file, name, maxSeconds) => {
    const found = maxSeconds
      ? container.readUpTo(maxSeconds, bytes(file), model(name))
      : container.read(bytes(file), model(name));
    return { ...found, codes: [...found.codes], mask: maskText(found.mask) };
  },
  write: (utterance, mode, name) =>
    text(container.write({ ...utterance, mask: maskOf(utterance.mask) }, mode, model(name))),
  keep: (statistics, tau, options) => maskText(ple.keep(floats(statistics), tau, options)),
  steps: (features, dim) => text(ple.cosineSteps(floats(features), dim)),
  calibrate: (statistics, target, options) => {
    const { tau, tokens } = rate.calibrate((at) => ple.keep(floats(statistics), at, options), target);
    return { tau, tokens };
  },
  tokens: (bitrate, samples, layout, sMax) => rate.tokensForBitrate(bitrate, samples, layout, sMax),
  level: (samples) => audio.checkLevel(floats(samples)).length,
  breaksOff: (file) => wav.breaksOff(bytes(file).buffer) ?? null,
  resample: (samples, from, to) => text(audio.resample(floats(samples), from, to)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...rest] = JSON.parse(line);
  let answer;
  try {
    answer = { value: calls[name](...rest) };
  } catch (error) {
    answer = { error: error.constructor.name, message: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
