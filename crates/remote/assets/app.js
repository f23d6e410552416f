// Shows the state of the daemon. `/health` is the only route that needs no token.
const state = document.getElementById("state");
const base = globalThis.__RUBBER_DUCK_REMOTE_CONFIG__?.daemon?.httpUrl ?? "";
fetch(`${base}/health`)
  .then((answer) => answer.json())
  .then(({ status }) => {
    state.textContent = `Listening over ${status.protocol}, ${status.connectedClients} connected.`;
  })
  .catch(() => {
    state.textContent = "The daemon does not answer.";
  });
