// @modelcontextprotocol/inspector in its command-line mode, over stdin and stdout.
import { assert, check, output, quack, workspace } from './harness.mjs';
import path from 'node:path';

const program = path.join(import.meta.dirname, 'node_modules/@modelcontextprotocol/inspector/cli/build/cli.js');

async function inspect(...args) {
  const command = [program, '--cli', quack, 'mcp', '--workspace', workspace, ...args];
  const { code, stdout, stderr } = await output(process.execPath, command, { timeout: 60_000 });
  assert(code === 0, `exit code ${code}: ${stdout} ${stderr}`);
  return JSON.parse(stdout);
}

export default async function run() {
  await check('inspector lists the tools', async () => {
    const { tools } = await inspect('--method', 'tools/list');
    assert(tools.some(({ name }) => name === 'bash'), JSON.stringify(tools));
    return `${tools.length} tools`;
  });
  await check('inspector calls bash', async () => {
    const call = ['--method', 'tools/call', '--tool-name', 'bash', '--tool-arg', 'command=echo inspected'];
    const { content } = await inspect(...call);
    assert(content[0].text.includes('inspected'), JSON.stringify(content));
  });
}
