// Keeps the page for when there is no network, and gives it the headers that threads need where a host cannot.
//
// Names with a hash never change, so they come from the store. All else comes from the network first: another page may
// be served here one day, and must not be mixed with this one.

const HEADERS = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
const STORES = "dtm-codec-page-";

self.addEventListener("install", (event) => event.waitUntil(store()));

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim())); // also the page that brought it

async function store() {
  const { version, files } = await (await fetch("page.json", { cache: "no-cache" })).json();
  const cache = await caches.open(STORES + version);
  const hashed = (path) => /^(model|runtime)\//.test(path);
  await cache.addAll([
    "./",
    "page.json",
    ...Object.entries(files).map(([path, { hash }]) => (hashed(path) ? `${path}?v=${hash}` : path)),
  ]);
  for (const name of await caches.keys()) {
    if (name.startsWith(STORES) && name !== STORES + version) await caches.delete(name);
  }
}

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method === "GET" && url.href.startsWith(self.registration.scope))
    event.respondWith(answer(event.request, url));
});

async function answer(request, url) {
  const stored = () => caches.match(request, { ignoreVary: true });
  if (url.searchParams.has("v")) return isolated((await stored()) ?? (await fetch(request)));
  try {
    return isolated(await fetch(request));
  } catch (error) {
    const kept = await stored();
    if (kept) return isolated(kept);
    throw error;
  }
}

function isolated(response) {
  if (!response.body) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
