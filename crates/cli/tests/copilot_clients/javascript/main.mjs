// Scenarios with the official Copilot SDK for JavaScript, unmodified.
//
// Usage: main.mjs [ARGUMENT...] -- SCENARIO...
// The SDK starts the program that COPILOT_CLI_PATH names, with these arguments before its own. The model follows
// `script.yaml` beside this folder, in which LONG_SLEEP stands for the command in the environment variable of this name.
// Prints a line for each scenario that has passed; the first that fails ends the program with an error.

import messages from "./messages.mjs";
import stops from "./stops.mjs";
import { names } from "./support.mjs";

const SCENARIO_MS = 40_000;
const scenarios = { ...messages, ...stops };

for (const name of names) {
  const limit = setTimeout(() => {
    console.error(`${name} takes longer than ${SCENARIO_MS} ms`);
    process.exit(1);
  }, SCENARIO_MS);
  await scenarios[name]();
  clearTimeout(limit);
  console.log(`passed ${name}`);
}
// Connections that are kept alive.
process.exit(0);
