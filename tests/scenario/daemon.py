"""A real cpprund, and jobs and store clients that come to it; for the tests of daemon_*_test.py."""
import os
import re
import socket
import struct
import subprocess
import urllib.error
import urllib.request

from harness import BIN, LIMIT, ScenarioTest

CPPRUND = os.path.join(BIN, "cpprund")
HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\x0d" + struct.pack("<I", 7)


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def set_request(key, value):
    return b"\x01" + text(key) + text(value)


class Daemon:
    def __init__(self, folder, *arguments, bind="127.0.0.1:0", **popen):
        read_end, write_end = os.pipe()
        self.log = os.path.join(folder, "cpprund.log")
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [CPPRUND, "--bind", bind, "--http-bind", "127.0.0.1:0", f"--ready-fd={write_end}",
                 *arguments], pass_fds=[write_end], stderr=log, **popen)
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            self.port, self.http, *self.stores = (int(line) for line in ready.read().split())

    def end(self, limit=LIMIT):
        return self.process.wait(limit)

    def words(self):
        with open(self.log) as log:
            return log.read()

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=LIMIT) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, series):
        for line in self.get("/metrics")[1].splitlines():
            if line.rsplit(" ", 1)[0] == series:
                return float(line.rsplit(" ", 1)[1])
        return None

    def resident(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
            return int(re.search(r"^Rss:\s+(\d+) kB", f.read(), re.M)[1])

    def client(self, port=None):
        client = socket.create_connection(("127.0.0.1", port or self.port), timeout=LIMIT)
        client.sendall(HELLO)
        assert client.recv(4) == struct.pack("<I", 7)
        return client


class DaemonTest(ScenarioTest):
    def daemon(self, *arguments, **popen):
        daemon = Daemon(self.folder, *arguments, **popen)
        self.addCleanup(daemon.process.wait)
        self.addCleanup(daemon.process.kill)
        return daemon

    def node(self, daemon, name, *arguments, run="job", nodes="2", command=("./w.sh",)):
        return self.start(f"--nnodes={nodes}", "--nproc-per-node=1", "--rdzv-backend=c10d",
                          f"--rdzv-endpoint=127.0.0.1:{daemon.port}", f"--rdzv-id={run}", "--no-python", *arguments,
                          *command, env={"NODE": name})
