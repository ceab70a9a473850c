#!/usr/bin/env python3
"""Floods a store's port with clients that misbehave: flood.py PORT ATTEMPTS OPEN

Makes ATTEMPTS connections, with about OPEN of them open at once: what the server must refuse (garbage, keys, values and
lists over the limits, unknown opcodes), what it cannot know to be bad (nothing said, half a hello, a hello and nothing
more), and what has gone at once. Says "full" when OPEN are open for the first time, "made" when all attempts are made,
and each time goes on at a line from stdin. Then it waits until the server has given up on one that never finished its
hello. Exits 1 with a sentence if the server does not close what it should.
"""
import collections
import os
import resource
import socket
import struct
import sys

VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)
SET, GET, CHECK, WAIT, PING = b"\x01", b"\x03", b"\x05", b"\x06", b"\x0d"
PATIENCE = 60  # seconds, for whatever the server is to do
UNANSWERED = 1000  # refusals that are looked for later, so that the server need not answer one by one
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing is a reset, and leaves no TIME_WAIT here


def length(number):
    return struct.pack("<Q", number)


KEY = length(4) + b"/bad"
HALF_A_HELLO = VALIDATE[:3]
# What an attempt sends, and what becomes of it.
REFUSED, KEPT, GONE = range(3)
TURN = [
    (REFUSED, b"GET / HTTP/1.0\r\nHost: store\r\n\r\n"),
    (KEPT, b""),
    (REFUSED, VALIDATE + GET + length(8193)),
    (KEPT, VALIDATE + PING + bytes(4)),
    (REFUSED, VALIDATE + SET + KEY + length(8388609)),
    (GONE, b""),
    (REFUSED, VALIDATE + WAIT + length(131073) + KEY),
    (KEPT, HALF_A_HELLO),
    (REFUSED, VALIDATE + b"\xee" + KEY),
    (REFUSED, b"\x16\x03\x01" + os.urandom(200)),
]


class Flood:
    def __init__(self, port, most_open):
        self.port = port
        self.most_open = most_open
        self.made = 0
        self.kept = collections.deque()
        self.refused = collections.deque()

    def connect(self):
        client = socket.socket()
        client.settimeout(PATIENCE)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        # From many addresses of this host: one alone has too few ports.
        client.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
        client.bind((f"127.0.1.{1 + self.made % 200}", 0))
        client.connect(("127.0.0.1", self.port))
        self.made += 1
        return client

    def attempt(self):
        fate, words = TURN[self.made % len(TURN)]
        client = self.connect()
        if words:
            client.sendall(words)
        if fate == GONE:
            client.close()
        elif fate == KEPT:
            self.kept.append(client)
        else:
            self.refused.append((words, client))
        while len(self.refused) > UNANSWERED:
            self.expect_end(*self.refused.popleft())
        while len(self.kept) + len(self.refused) > self.most_open:
            self.kept.popleft().close()

    def expect_end(self, words, client):
        try:
            answer = client.recv(1)
        except ConnectionResetError:
            answer = b""
        except TimeoutError:
            answer = b"nothing"
        alert = b"\x15" if words[:1] == b"\x16" else b""  # who speaks TLS is told in it
        if answer not in (b"", alert):
            sys.exit(f"the server did not close who said {words!r}")
        client.close()

    def send_too_long_a_request(self):
        """Keys within all limits, but more than a request may hold."""
        client = self.connect()
        client.sendall(VALIDATE + CHECK + length(131072))
        key = length(8192) + bytes(8192)
        try:
            for _ in range(20_000):
                client.sendall(key)
        except (ConnectionResetError, BrokenPipeError):
            return client.close()
        sys.exit("the server took a request of 160 MiB")

    def begin_a_hello(self):
        client = self.connect()
        client.sendall(HALF_A_HELLO)
        return client


def pause(word):
    print(word, flush=True)
    sys.stdin.readline()


def main():
    port, attempts, most_open = map(int, sys.argv[1:])
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    flood = Flood(port, most_open)
    unfinished = flood.begin_a_hello()
    flood.send_too_long_a_request()
    full = False
    while flood.made < attempts:
        flood.attempt()
        if not full and len(flood.kept) + len(flood.refused) == most_open:
            full = True
            pause("full")
    while flood.refused:
        flood.expect_end(*flood.refused.popleft())
    pause("made")
    flood.expect_end(HALF_A_HELLO, unfinished)


if __name__ == "__main__":
    main()
