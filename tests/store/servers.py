"""The store servers that the tests beside this file start: ours as a program, LibTorch's within this process."""

import os
import subprocess

# LibTorch asks the name server for each peer's name; where that does not answer, not for five seconds each time.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")


class OurServer:
    """serve_store, at the path given, with its options; `port` on 127.0.0.1, and those of its proxies."""

    def __init__(self, program, *options):
        read_end, write_end = os.pipe()
        self.process = subprocess.Popen(
            [program, "--ready-fd", str(write_end), *options], stdin=subprocess.PIPE, pass_fds=[write_end]
        )
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            self.port = int(ready.readline())
            self.proxies = [int(ready.readline()) for _ in range(self.count(options))]

    @staticmethod
    def count(options):
        return int(options[options.index("--proxies") + 1]) if "--proxies" in options else 0

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0, f"the server exited {self.process.returncode}"


class TorchServer:
    """LibTorch's own, of either kind. Needs the Python of a virtual environment with torch."""

    def __init__(self, use_libuv):
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        import torch.distributed as dist

        self.store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv=use_libuv)
        self.port = self.store.port

    def close(self):
        del self.store
