// Runs the checks of this folder: `node run.mjs QUACK CONFORMANCE_SERVER [WORD]`. Called by run.sh.
import { finish, prepare } from './harness.mjs';

const [quack, fixtures, only] = process.argv.slice(2);
prepare(quack, fixtures);
const parts = ['conformance', 'inspector', 'typescript', 'crashes', 'tasks', 'http', 'python'];
for (const part of parts.filter(part => !only || part.includes(only))) {
  const { default: run } = await import(`./${part}.mjs`);
  await run();
}
await finish();
