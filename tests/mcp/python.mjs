// The official SDK for Python (revision 2026-07-28): client.py, which prints a line of JSON for each check.
import { env, hanging, output, quack, report } from './harness.mjs';
import path from 'node:path';

export default async function run() {
  const here = import.meta.dirname;
  const [job, call] = [hanging(), hanging()];
  const args = [path.join(here, 'client.py'), quack, job.command, call.command, call.marker];
  const { code, stdout, stderr } = await output(path.join(here, 'venv/bin/python'), args, { env });
  for (const line of stdout.trim().split('\n').filter(Boolean)) {
    const { name, problem } = JSON.parse(line);
    report(`python: ${name}`, problem);
  }
  if (code !== 0) report('python: client.py ends well', `${code}: ${stderr}`);
}
