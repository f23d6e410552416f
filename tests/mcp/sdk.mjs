// The official SDK for TypeScript as a client of `quack mcp`, and the check of one result.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { assert, env, home, quack, workspace } from './harness.mjs';

const ajv = new Ajv2020({ strict: false, validateFormats: false });

// Starts `quack mcp` in the workspace and connects to it.
export async function connect(name, args = [], cwd = workspace) {
  const client = new Client({ name, version: '1.2.3' });
  const transport = new StdioClientTransport({
    command: quack, args: ['mcp', ...args], cwd, stderr: 'inherit', env: { ...env, RUBBER_DUCK_APP_SUPPORT: home },
  });
  await client.connect(transport);
  return client;
}

export const bash = (client, command, options) =>
  client.callTool({ name: 'bash', arguments: { command } }, undefined, options);

// Checks a result against the tool and a row of tools.json.
export function judge(tool, result, wanted) {
  const text = result.content[0].text;
  const all = JSON.stringify(result);
  assert(new RegExp(wanted.text).test(text), `${wanted.tool}: no ${wanted.text} in ${all}`);
  assert((result.isError ?? false) === (wanted.isError ?? false), `${wanted.tool}: isError in ${all}`);
  assert(result.structuredContent.text === text, `${wanted.tool}: another text in ${all}`);
  assert(result.structuredContent.exitCode === wanted.exitCode || wanted.exitCode === undefined, all);
  const isValid = ajv.compile(tool.outputSchema);
  assert(isValid(result.structuredContent), `${wanted.tool}: ${JSON.stringify(isValid.errors)} in ${all}`);
}
