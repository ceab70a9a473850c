"""Replays recorded conversations with LibTorch's libuv store server against ours, whole and byte by byte.

tcpstore-vectors.json: `group` (steps in order on a fresh server), `conn` (label of a connection), `auto_validate`,
`request_hex`, `response_hex`, `closed`, `backend` (both, libuv or legacy), `note`.
"""

import contextlib
import json
import pathlib
import socket
import struct
import sys
import unittest

from servers import OurServer

SERVER = sys.argv.pop(1)
STEPS = json.loads((pathlib.Path(__file__).parent / "tcpstore-vectors.json").read_text())
VALIDATE = bytes.fromhex("00cef7853c")
# Where we close at once and the recorded server kept a connection without a first VALIDATE: see PROTOCOL.md.
STRICTER = {("bad_magic", "wrong_magic"), ("no_validate", "ping_first"), ("no_validate", "ping_second")}


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.validated = False

    def send(self, request, byte_by_byte):
        self.validated = self.validated or request.startswith(VALIDATE)
        pieces = [request[i : i + 1] for i in range(len(request))] if byte_by_byte else [request]
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except OSError:
            pass  # noticed when receiving

    def receive(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                return data, True
            data += piece
        return data, False

    def is_closed(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def nothing_more(self):
        """Everything sent was served and nothing waits to be received but the answer to this ping."""
        nonce = struct.pack("<I", 0xC0FFEE)
        self.socket.sendall(b"\x0d" + nonce)
        return self.receive(4) == (nonce, False)


class Vectors(unittest.TestCase):
    def replay(self, steps, byte_by_byte):
        connections = {}
        with contextlib.closing(OurServer(SERVER)) as server:
            for step in steps:
                if step["conn"] not in connections:
                    connections[step["conn"]] = Connection(server.port)
                    if step["auto_validate"]:
                        connections[step["conn"]].send(VALIDATE, byte_by_byte)
                connection = connections[step["conn"]]
                request, response = (bytes.fromhex(step[name + "_hex"]) for name in ("request", "response"))
                strict = (step["group"], step["name"]) in STRICTER
                with self.subTest(step=step["name"], note=step["note"], byte_by_byte=byte_by_byte):
                    connection.send(request, byte_by_byte)
                    if strict or step["closed"]:
                        self.assertTrue(connection.is_closed())
                        continue
                    self.assertEqual(connection.receive(len(response))[0].hex(), response.hex())
                    if connection.validated or step["auto_validate"]:
                        self.assertTrue(connection.nothing_more(), "more than the response came")
        for connection in connections.values():
            connection.socket.close()

    def test_every_group(self):
        groups = {}
        for step in STEPS:
            if step["backend"] != "legacy":
                groups.setdefault(step["group"], []).append(step)
        self.assertEqual(sum(map(len, groups.values())) + 9, len(STEPS))
        for name, steps in groups.items():
            for byte_by_byte in (False, True):
                with self.subTest(group=name):
                    self.replay(steps, byte_by_byte)


if __name__ == "__main__":
    unittest.main()
