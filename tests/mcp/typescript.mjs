// The official SDK for TypeScript (revision 2025-11-25) over stdin and stdout: every tool, cancellation, progress,
// 1,000 calls, 50 connections and a long output.
import { asked, assert, check, gone, hanging, runs } from './harness.mjs';
import { bash, connect, judge } from './sdk.mjs';
import fs from 'node:fs';

const CALLS = 1000;
const AT_ONCE = 20;
const CONNECTIONS = 50;

async function everyTool(client) {
  const { tools } = await client.listTools();
  const job = hanging();
  const rows = JSON.parse(fs.readFileSync(new URL('tools.json', import.meta.url), 'utf8').replace('MARKER', job.command));
  const missing = tools.filter(({ name }) => !rows.some(({ tool }) => tool === name));
  assert(missing.length === 0, `tools.json lacks ${missing.map(({ name }) => name)}`);
  let started;
  for (const template of rows) {
    const row = JSON.parse(JSON.stringify(template).replaceAll('"JOB"', `"${started}"`));
    const result = await client.callTool({ name: row.tool, arguments: row.arguments });
    judge(tools.find(({ name }) => name === row.tool), result, row);
    started = result.structuredContent.data?.jobId ?? started;
  }
  await gone(job.marker);
  return `${tools.length} tools in ${rows.length} calls`;
}

async function cancelled(client) {
  const { marker, command } = hanging();
  const stop = new AbortController();
  const calling = bash(client, command, { signal: stop.signal }).then(() => 'answered', error => String(error));
  await runs(marker);
  stop.abort('enough');
  assert((await calling).includes('enough'), await calling);
  await gone(marker);
  const next = await bash(client, 'echo after-the-cancel');
  assert(next.content[0].text.includes('after-the-cancel'), JSON.stringify(next));
}

async function progress(client) {
  const seen = [];
  const steps = 'for i in 1 2 3 4 5; do echo step-$i; sleep 0.5; done';
  await bash(client, steps, { onprogress: progress => seen.push(progress) });
  const messages = seen.map(({ message }) => message);
  assert(messages.filter(message => /^step-\d$/.test(message)).length >= 2, JSON.stringify(seen));
  const grows = seen.every(({ progress }, i) => i === 0 || seen[i - 1].progress < progress);
  assert(grows, JSON.stringify(seen));
  return `${seen.length} notifications`;
}

async function quiet(client) {
  let seen = 0;
  const options = { timeout: 8000, resetTimeoutOnProgress: true, onprogress: () => (seen += 1) };
  const result = await bash(client, 'sleep 15; echo at-last', options);
  assert(result.content[0].text.includes('at-last'), JSON.stringify(result));
  return `${seen} notifications`;
}

async function manyCalls(client) {
  let next = 0;
  const caller = async () => {
    while (next < CALLS) {
      const number = next++;
      const result = await bash(client, `echo call-${number}-`);
      assert(result.content[0].text.includes(`call-${number}-`), `${number}: ${JSON.stringify(result)}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, caller));
  return `${CALLS} calls, ${AT_ONCE} at once`;
}

async function manyConnections() {
  const clients = await Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => connect(`many-${i}`)));
  const calls = clients.map((client, i) => bash(client, `echo from-${i}-`, { timeout: 120_000 }));
  const results = await Promise.all(calls);
  results.forEach((result, i) => assert(result.content[0].text.includes(`from-${i}-`), JSON.stringify(result)));
  const { workers } = await asked('ps');
  const mine = workers.filter(({ sessionName }) => /^many-\d+$/.test(sessionName));
  const sessions = new Set(mine.map(({ sessionId }) => sessionId));
  await Promise.all(clients.map(client => client.close()));
  assert(sessions.size === CONNECTIONS, `${sessions.size} sessions: ${JSON.stringify(workers)}`);
  return `${CONNECTIONS} connections, ${sessions.size} sessions with a worker`;
}

async function longOutput(client) {
  const result = await bash(client, 'seq 1 300000');
  const link = result.content.find(({ type }) => type === 'resource_link');
  assert(link, JSON.stringify(result).slice(0, 2000));
  const { resources } = await client.listResources();
  assert(resources.some(({ uri }) => uri === link.uri), JSON.stringify(resources));
  const { contents } = await client.readResource({ uri: link.uri });
  assert(contents[0].uri === link.uri && contents[0].text.startsWith('1\n2\n3\n'), contents[0].text.slice(0, 200));
  return `${contents[0].text.length} characters read`;
}

export default async function run() {
  const client = await connect('typescript', ['--tools', 'all']);
  await check('typescript: every tool', () => everyTool(client));
  await check('typescript: a cancelled command leaves no process', () => cancelled(client));
  await check('typescript: progress has the last line', () => progress(client));
  await check('typescript: progress keeps a quiet command alive', () => quiet(client));
  await check('typescript: a long output is a resource', () => longOutput(client));
  await check('typescript: many calls', () => manyCalls(client));
  await client.close();
  await check('typescript: many connections', manyConnections);
}
