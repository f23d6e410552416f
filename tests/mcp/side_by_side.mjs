// Compares `quack mcp` with the reference server for files and with a server for commands, and prints tables. Not part
// of run.sh: numbers need a quiet machine and a release build.
//
//   npm install --ignore-scripts --prefix tests/mcp/side-by-side \
//     @modelcontextprotocol/server-filesystem@2026.8.31 @wonderwhy-er/desktop-commander@0.2.52
//   node tests/mcp/side_by_side.mjs target/release/quack [times|behaviour]
//
// Desktop Commander is the server for commands with the most downloads on npm. Both run without a network, because
// Desktop Commander reports its use to its authors.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { env, finish, hanging, home, prepare, processes, runs, until, workspace } from './harness.mjs';
import fs from 'node:fs';
import path from 'node:path';

const CALLS = 500;
const LONGEST_FLOOD = 60_000;
const MOST_MEMORY_MB = 3000;
const modules = path.join(import.meta.dirname, 'side-by-side/node_modules');
const [quack, part] = process.argv.slice(2);
prepare(quack);

const user = fs.mkdtempSync(path.join(path.dirname(workspace), 'quackd-mcp-home-'));
const outside = fs.mkdtempSync(path.join(path.dirname(workspace), 'quackd-mcp-outside-'));
fs.writeFileSync(path.join(workspace, 'two-kilobytes.txt'), 'The duck sleeps on the pond.\n'.repeat(71));
fs.writeFileSync(path.join(outside, 'secret.txt'), 'the-secret');
fs.symlinkSync(path.join(outside, 'secret.txt'), path.join(workspace, 'link.txt'));
fs.mkdirSync(path.join(user, '.claude-server-commander'));
fs.writeFileSync(
  path.join(user, '.claude-server-commander/config.json'),
  JSON.stringify({ telemetryEnabled: false, allowedDirectories: [workspace], defaultShell: 'bash' }),
);

const script = (...parts) => [process.execPath, path.join(modules, ...parts)];
const servers = [
  {
    name: 'quackd',
    command: [path.resolve(quack), 'mcp', '--tools', 'core'],
    read: file => ['read_file', { path: file }],
    shell: (command, ms) => ['bash', ms ? { command, timeout_ms: ms } : { command }],
  },
  {
    name: 'server-filesystem',
    command: ['unshare', '-rn', ...script('@modelcontextprotocol/server-filesystem/dist/index.js'), workspace],
    read: file => ['read_text_file', { path: path.join(workspace, file) }],
  },
  {
    name: 'Desktop Commander',
    command: ['unshare', '-rn', ...script('@wonderwhy-er/desktop-commander/dist/index.js'), '--no-onboarding'],
    read: file => ['read_file', { path: path.join(workspace, file) }],
    shell: (command, ms) => ['start_process', { command, timeout_ms: ms ?? 600_000 }],
  },
];

async function connect(server) {
  const [command, ...args] = server.command;
  const client = new Client({ name: 'side-by-side', version: '1.2.3' });
  const settings = { command, args, cwd: workspace, stderr: 'ignore', env: { ...env, HOME: user } };
  await client.connect(new StdioClientTransport(settings));
  return client;
}

const call = (client, [name, args], options) =>
  client.callTool({ name, arguments: args }, undefined, { timeout: 120_000, ...options });

const row = (...cells) => console.log(`| ${cells.join(' | ')} |`);
const median = (times, part = 0.5) => times.sort((a, b) => a - b)[Math.floor(times.length * part)];
const ms = times => `${median(times).toFixed(2)} ms (p99 ${median(times, 0.99).toFixed(1)})`;

// Returns the processes of a server: its own, for quackd the daemon with its workers, and all that they started.
function all(client, server) {
  const wanted = new Set([String(client.transport.pid)]);
  if (server.name === 'quackd') processes(home, 'environ').filter(pid => isQuack(pid)).forEach(pid => wanted.add(pid));
  for (let size = 0; size !== wanted.size; ) {
    size = wanted.size;
    for (const pid of fs.readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
      try {
        const parent = fs.readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').pop().split(' ')[1];
        if (wanted.has(parent)) wanted.add(pid);
      } catch {}
    }
  }
  return [...wanted];
}

function isQuack(pid) {
  try {
    return fs.readlinkSync(`/proc/${pid}/exe`).includes('quack');
  } catch {
    return false;
  }
}

// Returns the memory of processes in MB, with shared pages divided among those that share them.
function memory(pids) {
  const of = pid => {
    try {
      return Number(/^Pss:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1'))[1]);
    } catch {
      return 0;
    }
  };
  return pids.reduce((sum, pid) => sum + of(pid), 0) / 1024;
}

async function times() {
  const clients = await Promise.all(servers.map(connect));
  const measured = servers.map(() => ({ read: [], shell: [] }));
  for (let i = 0; i < CALLS + 20; i++) {
    for (const [at, server] of servers.entries()) {
      for (const [kind, what] of [['read', server.read('two-kilobytes.txt')], ['shell', server.shell?.('true')]]) {
        if (!what) continue;
        const began = performance.now();
        const result = await call(clients[at], what);
        if (result.isError) throw new Error(`${server.name}: ${JSON.stringify(result)}`);
        if (i >= 20) measured[at][kind].push(performance.now() - began);
      }
    }
  }
  row('', ...servers.map(({ name }) => name));
  row('---', ...servers.map(() => '---'));
  const tools = await Promise.all(clients.map(async client => (await client.listTools()).tools.length));
  row('tools', ...tools);
  row('read a file of 2 KB, p50', ...measured.map(({ read }) => ms(read)));
  row('`true` in a shell, p50', ...measured.map(({ shell }) => (shell.length ? ms(shell) : 'no commands')));
  const memories = servers.map((server, at) => {
    const pids = all(clients[at], server);
    return `${memory(pids).toFixed(0)} MB in ${pids.length} processes`;
  });
  row(`memory after ${CALLS} calls of each kind`, ...memories);
  await Promise.all(clients.map(client => client.close()));
}

const pause = ms => new Promise(wake => setTimeout(wake, ms));
const short = result => JSON.stringify(result?.content?.[0]?.text ?? String(result)).slice(0, 160).replaceAll('|', '\\|');

// Says whether a marked command ends in 10 s, and ends it.
async function fate(marker) {
  const ended = await until('it ends', () => processes(marker).length === 0, 10_000).then(() => true, () => false);
  for (const pid of processes(marker)) process.kill(Number(pid), 'SIGKILL');
  return ended ? 'the command is gone' : '**the command still runs**';
}

const tries = {
  'read `../` outside': async (server, client) => short(await call(client, server.read(`../${path.basename(outside)}/secret.txt`)).catch(e => e)),
  'read a link that leads outside': async (server, client) => short(await call(client, server.read('link.txt')).catch(e => e)),
  'a command writes outside': async (server, client) => {
    const file = path.join(outside, `by-${server.name.replaceAll(' ', '-')}`);
    await call(client, server.shell(`echo x > ${file}`)).catch(() => {});
    return fs.existsSync(file) ? '**written**' : 'refused';
  },
  'a hanging command with a timeout of 2 s': async (server, client) => {
    const { marker, command } = hanging();
    const result = await call(client, server.shell(command, 2000)).catch(error => error);
    return `${short(result)}, then ${await fate(marker)}`;
  },
  'cancel in mid-command': async (server, client) => {
    const { marker, command } = hanging();
    const stop = new AbortController();
    call(client, server.shell(command), { signal: stop.signal }).catch(() => {});
    await runs(marker);
    stop.abort();
    return fate(marker);
  },
  '10 GiB of output': async (server, client) => {
    const began = Date.now();
    let result;
    call(client, server.shell('head -c 10G /dev/zero')).then(it => (result = it), error => (result = error));
    let most = 0;
    while (result === undefined && Date.now() - began < LONGEST_FLOOD && most < MOST_MEMORY_MB) {
      most = Math.max(most, memory(all(client, server)));
      await pause(250);
    }
    const seconds = ((Date.now() - began) / 1000).toFixed(0);
    const size = JSON.stringify(result ?? '').length;
    const end = result === undefined ? `stopped after ${seconds} s` : `answer of ${size} bytes after ${seconds} s`;
    for (const pid of processes('head\0-c\0' + '10G')) process.kill(Number(pid), 'SIGKILL');
    return `${end}, at most ${most.toFixed(0)} MB: ${result === undefined ? '' : short(result)}`;
  },
  'the next call after that': async (server, client) => short(await call(client, server.shell('echo alive'), { timeout: 20_000 }).catch(e => e)),
  'kill -9 of the server in mid-command': async (server, client) => {
    const { marker, command } = hanging();
    call(client, server.shell(command)).catch(() => {});
    await runs(marker);
    process.kill(client.transport.pid, 'SIGKILL');
    return fate(marker);
  },
};

async function behaviour() {
  const cells = Object.fromEntries(Object.keys(tries).map(name => [name, []]));
  for (const server of servers) {
    const client = await connect(server);
    for (const [name, run] of Object.entries(tries)) {
      const needsShell = !name.startsWith('read');
      cells[name].push(needsShell && !server.shell ? 'no commands' : await run(server, client).catch(error => `failed: ${error}`));
    }
    await client.close();
  }
  row('', ...servers.map(({ name }) => name));
  row('---', ...servers.map(() => '---'));
  for (const [name, found] of Object.entries(cells)) row(name, ...found);
}

if (part !== 'behaviour') await times();
if (part !== 'times') await behaviour();
for (const directory of [outside, user]) fs.rmSync(directory, { recursive: true });
await finish();
