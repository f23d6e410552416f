// @modelcontextprotocol/conformance, in both revisions: against the product, and against the fixture tools on the same
// transport (crates/mcp/examples/conformance).
import { assert, check, fixtures, output, printed, start, startHttp, startProxy } from './harness.mjs';
import fs from 'node:fs';
import path from 'node:path';

const REVISIONS = ['2026-07-28', '2025-11-25'];
const here = import.meta.dirname;
const program = path.join(here, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');

async function judge(name, url, revision) {
  const known = path.join(here, 'expected-failures', `${name}-${revision}.yaml`);
  const args = [program, 'server', '--url', url, '--requirements', revision];
  if (fs.existsSync(known)) args.push('--expected-failures', known);
  const { code, stdout, stderr } = await output(process.execPath, args);
  const summary = stdout.slice(Math.max(0, stdout.indexOf('=== SUMMARY')));
  assert(code === 0, `exit code ${code}\n${summary}\n${stderr}`);
  const rows = [...summary.matchAll(/^([✓✗]) \S+: (\d+) passed, (\d+) failed/gm)];
  const good = rows.filter(([, mark]) => mark === '✓').length;
  const checks = rows.reduce((sum, row) => sum + Number(row[2]), 0);
  assert(name === 'product' || good === rows.length, summary);
  return `${good} of ${rows.length} scenarios pass with ${checks} checks`;
}

export default async function run() {
  const product = await startHttp();
  const productUrl = await startProxy(product.url, product.token);
  for (const revision of REVISIONS) {
    await check(`conformance ${revision} of the product`, () => judge('product', productUrl, revision));
  }
  product.child.kill();
  const child = start(fixtures, ['a-token-of-the-tests']);
  const url = (await printed(child, /\n/)).trim();
  const fixturesUrl = await startProxy(url, 'a-token-of-the-tests');
  for (const revision of REVISIONS) {
    await check(`conformance ${revision} of the fixtures`, () => judge('fixtures', fixturesUrl, revision));
  }
  child.kill();
}
