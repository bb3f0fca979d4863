// Lets the conformance suite of MCP load on Node 20. The suite imports `globSync`, which Node 22 added to `fs`, but its
// tests of clients do not call it. Node 22 and later need no replacement.
import fs from 'node:fs';
import { register } from 'node:module';

const url = (text) => 'data:text/javascript,' + encodeURIComponent(text);

if (!fs.globSync) {
  const replacement = url(`
    export * from 'node:fs';
    export { default } from 'node:fs';
    export function globSync() {
      throw new Error('this version of Node has no globSync');
    }`);
  register(url(`
    export async function resolve(specifier, context, next) {
      const isOfSuite = context.parentURL?.includes('/@modelcontextprotocol/conformance/');
      return specifier === 'fs' && isOfSuite
        ? { url: ${JSON.stringify(replacement)}, shortCircuit: true }
        : next(specifier, context);
    }`));
}
