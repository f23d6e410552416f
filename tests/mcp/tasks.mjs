// Background jobs as tasks, for a client that declares the extension: JSON-RPC in revision 2026-07-28, because the SDKs
// have no tasks yet.
import { assert, check, gone, hanging, quack, runs, start, until } from './harness.mjs';
import readline from 'node:readline';

const TASKS = 'io.modelcontextprotocol/tasks';

function connect(capabilities) {
  const child = start(quack, ['mcp']);
  const waiting = new Map();
  readline.createInterface({ input: child.stdout }).on('line', line => {
    const message = JSON.parse(line);
    waiting.get(message.id)?.(message);
  });
  let last = 0;
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'tasks', version: '1.2.3' },
    'io.modelcontextprotocol/clientCapabilities': capabilities,
  };
  const request = (method, params = {}) => {
    last += 1;
    const answer = new Promise(done => waiting.set(last, done));
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: last, method, params: { ...params, _meta } })}\n`);
    return answer;
  };
  const job = command => request('tools/call', { name: 'bash', arguments: { command, background: true } });
  return { child, request, job };
}

async function completed({ request, job }) {
  const { result } = await job('echo the-output-of-the-task');
  assert(result.resultType === 'task' && result.taskId, JSON.stringify(result));
  const done = await until('the task completes', async () => {
    const answer = await request('tasks/get', { taskId: result.taskId });
    return answer.result?.status === 'completed' && answer.result;
  });
  assert(done.result.content[0].text.includes('the-output-of-the-task'), JSON.stringify(done));
}

async function cancelled({ request, job }) {
  const { marker, command } = hanging();
  const { result } = await job(command);
  await runs(marker);
  const working = await request('tasks/get', { taskId: result.taskId });
  assert(working.result.status === 'working', JSON.stringify(working));
  await request('tasks/cancel', { taskId: result.taskId });
  await gone(marker);
  await until('the task is cancelled', async () => {
    const answer = await request('tasks/get', { taskId: result.taskId });
    return answer.result?.status === 'cancelled';
  });
}

async function undeclared() {
  const client = connect({});
  const { marker, command } = hanging();
  const { result } = await client.job(command);
  assert(result.resultType === 'complete' && /job-\d+/.test(result.content[0].text), JSON.stringify(result));
  const { error } = await client.request('tasks/get', { taskId: 'any' });
  assert(error?.code === -32021, JSON.stringify(error));
  await runs(marker);
  client.child.stdin.end();
  await gone(marker);
}

export default async function run() {
  const client = connect({ extensions: { [TASKS]: {} } });
  await check('tasks: a job is a task with a result', () => completed(client));
  await check('tasks: a cancelled task leaves no process', () => cancelled(client));
  client.child.stdin.end();
  await check('tasks: without the extension a job is a tool result, and ends with the client', undeclared);
}
