// What all checks use: one line per check, processes that end with the run, and waiting for facts.
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const PATIENCE = 60_000;
const children = new Set();
let passed = 0;
let failed = 0;

export let quack;
export let fixtures;
export const home = fs.mkdtempSync(path.join(os.tmpdir(), 'quackd-mcp-state-'));
export const workspace = fs.mkdtempSync(path.join(os.tmpdir(), 'quackd-mcp-work-'));
export const env = { ...process.env, RUBBER_DUCK_APP_SUPPORT: home };
// No check may reach the internet.
delete env.EXA_API_KEY;
delete env.RUBBER_DUCK_EXA_API_KEY;

export function prepare(quackPath, fixturesPath) {
  quack = path.resolve(quackPath);
  fixtures = path.resolve(fixturesPath ?? '');
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => finish(130));
}

export function report(name, problem) {
  if (problem) failed += 1;
  else passed += 1;
  console.log(problem ? `FAILED  ${name}\n        ${String(problem).replaceAll('\n', '\n        ')}` : `ok      ${name}`);
}

// Runs one check. An exception is its failure.
export async function check(name, run) {
  try {
    const detail = await run();
    report(detail ? `${name}: ${detail}` : name);
  } catch (error) {
    report(name, error?.stack ?? error);
  }
}

export function assert(fact, text) {
  if (!fact) throw new Error(text);
}

// Waits until the function returns something, and returns it.
export async function until(what, fact, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await fact();
    if (found) return found;
    assert(Date.now() < end, `never: ${what}`);
    await new Promise(wake => setTimeout(wake, 50));
  }
}

// Returns the processes whose file in /proc has the text, such as a marker in the command line.
export function processes(text, file = 'cmdline') {
  const has = pid => {
    try {
      return fs.readFileSync(`/proc/${pid}/${file}`, 'latin1').includes(text);
    } catch {
      return false;
    }
  };
  return fs.readdirSync('/proc').filter(pid => /^\d+$/.test(pid) && Number(pid) !== process.pid && has(pid));
}

let markers = 0;
// A command that hangs and that no other process has.
export function hanging() {
  markers += 1;
  const marker = `600.${process.pid}${String(markers).padStart(3, '0')}`;
  return { marker, command: `sleep ${marker}` };
}

export const runs = marker => until(`${marker} runs`, () => processes(marker).length > 0);
export const gone = marker => until(`${marker} is gone`, () => processes(marker).length === 0);

// Starts a process that ends with the run.
export function start(command, args, options = {}) {
  const child = spawn(command, args, { cwd: workspace, env, stdio: ['pipe', 'pipe', 'inherit'], ...options });
  children.add(child);
  child.on('exit', () => children.delete(child));
  return child;
}

// Runs a program to its end. A code other than 0 is no exception here.
export async function output(command, args, options = {}) {
  const settings = { cwd: workspace, env, maxBuffer: 1 << 26, timeout: 300_000, killSignal: 'SIGKILL', ...options };
  try {
    return { code: 0, ...(await promisify(execFile)(command, args, settings)) };
  } catch (error) {
    return { code: error.code ?? 1, stdout: error.stdout ?? '', stderr: error.stderr ?? String(error) };
  }
}

// Runs a subcommand that prints JSON.
export async function asked(...args) {
  const { code, stdout, stderr } = await output(quack, [...args, '--json']);
  assert(code === 0, `quack ${args.join(' ')}: ${code} ${stdout} ${stderr}`);
  return JSON.parse(stdout);
}

// Returns the text that a process prints until it matches.
export function printed(child, pattern) {
  return new Promise((found, broken) => {
    let text = '';
    child.stdout.on('data', data => {
      text += data;
      if (pattern.test(text)) found(text);
    });
    child.on('exit', code => broken(new Error(`ended with ${code}: ${text}`)));
  });
}

// Starts `quack mcp --http`, and returns its address and token.
export async function startHttp(...args) {
  const child = start(quack, ['mcp', '--json', '--http', '127.0.0.1:0', ...args]);
  const { url, tokenFile } = JSON.parse(await printed(child, /\}\s*$/));
  return { child, url, token: fs.readFileSync(tokenFile, 'utf8').trim() };
}

// Starts a proxy on loopback that adds the token, for programs that cannot send one. Returns its address.
export function startProxy(url, token) {
  const server = http.createServer((request, response) => {
    const headers = { ...request.headers, authorization: `Bearer ${token}` };
    const onward = http.request(new URL(url), { method: request.method, headers }, answer => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    response.on('close', () => onward.destroy());
    onward.on('error', () => response.destroy());
    request.pipe(onward);
  });
  server.unref();
  return new Promise(done => {
    server.listen(0, '127.0.0.1', () => done(`http://127.0.0.1:${server.address().port}/mcp`));
  });
}

// Returns the processes of this run: with its state directory in the environment, or in its workspace.
function left() {
  const isInside = pid => {
    try {
      return fs.readlinkSync(`/proc/${pid}/cwd`).startsWith(workspace);
    } catch {
      return false;
    }
  };
  const all = fs.readdirSync('/proc').filter(pid => /^\d+$/.test(pid));
  return [...new Set([...processes(home, 'environ'), ...all.filter(isInside)])];
}

// Ends everything, prints the count and exits.
export async function finish(code) {
  for (const child of children) child.kill('SIGKILL');
  if (quack) await output(quack, ['stop']);
  const isClean = await until('nothing is left', () => left().length === 0, 20_000).catch(() => false);
  const name = pid => `${pid} ${fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')}`;
  const rest = isClean ? [] : left().map(name);
  if (code === undefined) report('no process is left', rest.join('\n'));
  for (const pid of left()) process.kill(Number(pid), 'SIGKILL');
  for (const directory of [home, workspace]) fs.rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(code ?? (failed ? 1 : 0));
}
