// The page has no service worker. This one removes that of another program, or of an earlier release, and what it kept.
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => {
	event.waitUntil(caches.keys().then((keys) => Promise.all([self.registration.unregister(), ...keys.map((key) => caches.delete(key))])));
});
