"""Scenarios with the official Copilot SDK for Python, unmodified.

usage: python [ARGUMENT...] -- SCENARIO...

The SDK starts the program that COPILOT_CLI_PATH names, with these arguments before its own. The model follows
`script.yaml` beside this folder, in which LONG_SLEEP stands for the command in the environment variable of this name.
Prints a line for each scenario that passed.
"""

import asyncio

import background
import cancels
import clients
import gaps
import lifecycle
import messages
import options
import stops
import waits
from support import NAMES, SCENARIOS

SCENARIO_MAX = 40

for name in NAMES:
    if name not in SCENARIOS:
        raise AssertionError(f"no scenario {name}")
    asyncio.run(asyncio.wait_for(SCENARIOS[name](), SCENARIO_MAX))
    print(f"passed {name}", flush=True)
