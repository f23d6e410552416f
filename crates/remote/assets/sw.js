// Keeps nothing: the page is of no use without its daemon. Removes what another program at this address has kept.
self.addEventListener("activate", (event) => {
  event.waitUntil(caches.keys().then((keys) => Promise.all(keys.map((key) => caches.delete(key)))));
});
