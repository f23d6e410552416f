// The official SDK for TypeScript over streamable HTTP, with a token.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { assert, check, gone, hanging, runs, startHttp } from './harness.mjs';
import { bash } from './sdk.mjs';

async function connect({ url, token }) {
  const client = new Client({ name: 'typescript-http', version: '1.2.3' });
  const headers = { authorization: `Bearer ${token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return client;
}

export default async function run() {
  const server = await startHttp();
  await check('http: a client with the token calls bash', async () => {
    const client = await connect(server);
    const seen = [];
    const result = await bash(client, 'for i in 1 2 3; do echo over-http-$i; sleep 0.5; done', { onprogress: one => seen.push(one) });
    assert(result.content[0].text.includes('over-http-3'), JSON.stringify(result));
    assert(seen.length > 0, 'no progress');
    await client.close();
  });
  await check('http: a cancelled command leaves no process', async () => {
    const client = await connect(server);
    const { marker, command } = hanging();
    const stop = new AbortController();
    const calling = bash(client, command, { signal: stop.signal }).catch(error => String(error));
    await runs(marker);
    stop.abort('enough');
    await calling;
    await gone(marker);
    await client.close();
  });
  await check('http: without the token, nothing', async () => {
    const refused = await connect({ ...server, token: 'wrong' }).catch(error => error);
    assert(refused instanceof Error && /401|token/i.test(String(refused)), String(refused));
  });
  server.child.kill();
}
