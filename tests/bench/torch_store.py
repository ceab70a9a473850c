"""LibTorch's store, for scripts/bench/store.

    serve HOST [PORT]           the libuv server, as torch.distributed's users get it; prints its port, and serves until
                                stdin ends
    connect HOST PORT COUNT     COUNT clients one after the other; prints the seconds of each as JSON
"""

import json
import os
import sys
import time

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
from torch.distributed import TCPStore  # noqa: E402

mode, host, *rest = sys.argv[1:]
if mode == "serve":
    server = TCPStore(host, int(rest[0]) if rest else 0, None, True, wait_for_workers=False, use_libuv=True)
    print(server.port, flush=True)
    sys.stdin.read()
else:
    port, count = map(int, rest)
    clients, seconds = [], []
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(count):
        start = time.monotonic()
        clients.append(TCPStore(host, port, None, False))
        seconds.append(time.monotonic() - start)
    print(json.dumps(seconds), flush=True)
