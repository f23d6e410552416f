// Kills in mid-command: of `quack mcp`, of the worker, of the daemon between two calls, and the end of the client.
import fs from 'node:fs';
import { asked, assert, check, gone, hanging, output, quack, runs, until } from './harness.mjs';
import { bash, connect } from './sdk.mjs';

async function serverKilled() {
  const client = await connect('killed-server');
  const { marker, command } = hanging();
  const calling = bash(client, command).catch(error => String(error));
  await runs(marker);
  process.kill(client.transport.pid, 'SIGKILL');
  assert(/closed/i.test(await calling), `${await calling}`);
  await gone(marker);
}

async function clientGone() {
  const client = await connect('gone-client');
  const { marker, command } = hanging();
  bash(client, command).catch(() => {});
  await runs(marker);
  await client.close();
  await gone(marker);
}

async function workerKilled() {
  const client = await connect('killed-worker');
  await bash(client, 'true');
  const { marker, command } = hanging();
  const calling = bash(client, command);
  await runs(marker);
  const { workers } = await asked('ps');
  const worker = workers.find(({ sessionName }) => sessionName === 'killed-worker');
  process.kill(worker.pid, 'SIGKILL');
  const result = await calling;
  assert(result.isError && /worker/i.test(result.content[0].text), JSON.stringify(result));
  assert(result.structuredContent.workerDied === true, JSON.stringify(result));
  await gone(marker);
  const next = await bash(client, 'echo after-the-kill');
  assert(next.content[0].text.includes('after-the-kill'), JSON.stringify(next));
  await client.close();
  return result.content[0].text.split('\n')[0];
}

async function daemonRestarted() {
  const client = await connect('restarted-daemon');
  await bash(client, 'true');
  const { supervisor, pid } = await asked('ps');
  assert((await output(quack, ['stop'])).code === 0, 'quack stop failed');
  // Other daemons of this machine may run on.
  await until('the daemon is gone', () => !fs.existsSync(`/proc/${supervisor?.pid ?? pid}`));
  const next = await bash(client, 'echo found-again');
  assert(next.content[0].text.includes('found-again'), JSON.stringify(next));
  await client.close();
}

async function daemonKilled() {
  const client = await connect('killed-daemon');
  const { marker, command } = hanging();
  const calling = bash(client, command);
  await runs(marker);
  const { supervisor, pid } = await asked('ps');
  process.kill(supervisor?.pid ?? pid, 'SIGKILL');
  const result = await calling;
  assert(result.isError && /daemon ended/.test(result.content[0].text), JSON.stringify(result));
  await gone(marker);
  const next = await bash(client, 'echo found-again');
  assert(next.content[0].text.includes('found-again'), JSON.stringify(next));
  await client.close();
  return result.content[0].text;
}

export default async function run() {
  await check('kill -9 of quack mcp ends its command', serverKilled);
  await check('the end of the client ends its command', clientGone);
  await check('kill -9 of the worker is one error, and the next call works', workerKilled);
  await check('a stopped daemon is started again', daemonRestarted);
  await check('kill -9 of the daemon is one error, and the next call works', daemonKilled);
}
