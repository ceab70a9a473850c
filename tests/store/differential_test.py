"""The same random requests to our server, or its proxies, and to LibTorch's own, both kinds: every byte that comes back is compared.

Several connections send batches of requests in random pieces. In most turns one of them works on all keys, so that the
order is known; in some, several work at once on keys that are theirs for that turn. A few keys collide all the time:
waits are met by other connections, cancelled, replaced, left open by a connection that ends; requests are left
unfinished while others are served; connections end by a fault, by a half-close or by a reset, within a request or not.

A model of the store says which requests are defined. Left out is what PROTOCOL.md lists under "Differences":
- the first request is always VALIDATE, and its five bytes travel together;
- a connection of which LibTorch's server keeps registrations that it should forget (a push met them, or a second wait
  was ended by the first one's keys) cancels its wait before anything else happens;
- a MULTI_SET may come in pieces, but not with other connections' requests in between;
- nothing comes near the limits that only one server has.
Besides: sums stay within 64 bits, and a connection that is reset has no open wait and no unanswered request, since
nobody knows what a server noticed first. Of the older server also: absent keys are not read, empty values not used (it
holds them back for 200 ms), COMPARE_SET not sent to keys that somebody waits for (it wakes nobody), ADD and BARRIER not
to keys that the connection itself waits for (they answer before they wake), queues not used, and no request left
unfinished (it waits for the rest and serves nobody).

CPPRUN_STORE_SEED repeats a run, CPPRUN_STORE_REQUESTS sets its length.
"""

import contextlib
import os
import random
import select
import socket
import struct
import sys
import tempfile
import unittest

from servers import OurServer, TorchServer
from store_model import OPCODES, VALIDATE, StoreModel, encode, u64

SERVER = sys.argv.pop(1)
SEED = int(os.environ.get("CPPRUN_STORE_SEED", random.SystemRandom().randrange(1 << 32)))
REQUESTS = int(os.environ.get("CPPRUN_STORE_REQUESTS", 100_000))
CONNECTIONS = 6
PATIENCE = 30  # seconds for bytes that must come
KEYS = [b"/%d" % n for n in range(8)] + [b"", b"\0", b"/\xff\0\n", b"init/", b"/" * 8192]
NUMBERS = [b"0", b"41", b"-7", b" \t12", b"+3", b"12abc", b"9223372036854775807", b"-9223372036854775808"]
TEXTS = [b"a", b"\0", b"\xff\xfe\r\n", b"-", b"+-1", b"9223372036854775808", b"x" * 100]
WEIGHTS = {
    "SET": 10, "COMPARE_SET": 8, "GET": 10, "ADD": 8, "CHECK": 6, "WAIT": 9, "GETNUMKEYS": 2, "DELETE_KEY": 9,
    "APPEND": 4, "MULTI_GET": 4, "MULTI_SET": 4, "CANCEL_WAIT": 3, "PING": 3, "QUEUE_PUSH": 8, "QUEUE_POP": 8,
    "QUEUE_LEN": 3, "LIST_KEYS": 2, "BARRIER": 4,
}  # fmt: skip
# Defined whatever others do before the request is whole.
UNFINISHED = ["SET", "COMPARE_SET", "GET", "CHECK", "WAIT", "DELETE_KEY", "APPEND", "MULTI_GET", "PING", "QUEUE_PUSH",
              "QUEUE_POP", "QUEUE_LEN"]  # fmt: skip
# Without those that only our server knows (PROTOCOL.md), of which it waits for the rest.
UNKNOWN = [opcode for opcode in range(19, 256) if opcode not in (0xC0, 0xC1)]
assert set(WEIGHTS) == set(OPCODES)


class Connection:
    """One connection to each of the two servers, which are sent the same."""

    def __init__(self, ports):
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        self.received = [bytearray(), bytearray()]
        self.expected = []  # replies of the model, and the names of their requests
        self.unfinished = None  # a request, and those of its bytes that were not sent
        self.log = []
        for one in self.sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(VALIDATE)

    def send(self, data):
        for one, received in zip(self.sockets, self.received):
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[one.send(rest, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    # A server that does not read on until its replies are taken.
                    if select.select([one], [one], [])[0]:
                        received += one.recv(1 << 20)

    def receive(self, size):
        for one, received in zip(self.sockets, self.received):
            one.settimeout(PATIENCE)
            # What does not come is reported with what did.
            with contextlib.suppress(TimeoutError):
                while len(received) < size and (piece := one.recv(1 << 20)):
                    received += piece

    def receive_end(self):
        for one, received in zip(self.sockets, self.received):
            one.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):  # closed with bytes of ours unread
                while piece := one.recv(1 << 20):
                    received += piece

    def close(self, reset=False):
        for one in self.sockets:
            if reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()


def keys_of_list(reply):
    """The reply to LIST_KEYS in an order of its own."""
    (count,), at, keys = struct.unpack_from("<q", reply), 8, []
    while at + 8 <= len(reply):
        (size,) = struct.unpack_from("<Q", reply, at)
        keys.append(bytes(reply[at + 8 : at + 8 + size]))
        at += 8 + size
    return count, sorted(keys)


class Differential:
    def __init__(self, test, ports, libuv, seed):
        self.test, self.ports, self.libuv = test, ports, libuv
        self.random = random.Random(seed)
        self.connected = 0
        self.model = StoreModel()
        self.connections = [self.connect() for _ in range(CONNECTIONS)]
        self.sent = dict.fromkeys(WEIGHTS, 0)
        self.endings = 0
        self.names = [name for name in WEIGHTS if libuv or not name.startswith("QUEUE_")]
        self.weights = [WEIGHTS[name] for name in self.names]

    def connect(self):
        """Ours by turns at each of its ports."""
        ours, theirs = self.ports
        self.connected += 1
        return Connection((ours[self.connected % len(ours)], theirs))

    # What to send

    def value(self):
        kind = self.random.random()
        if kind < 0.002:
            return self.random.randbytes(self.random.choice([70_000, 700_000]))
        if kind < 0.1:
            return self.random.randbytes(self.random.randrange(1, 3000))
        if kind < 0.15 and self.libuv:
            return b""
        return self.random.choice(NUMBERS if kind < 0.6 else TEXTS)

    def fields(self, name, keys):
        pick = self.random.choice
        if name in ("GETNUMKEYS", "CANCEL_WAIT", "LIST_KEYS"):
            return []
        if name == "PING":
            return [self.random.getrandbits(32)]
        if name == "MULTI_SET":
            return [[(pick(keys), self.value()) for _ in range(self.random.randrange(4))]]
        if name in ("CHECK", "WAIT", "MULTI_GET"):
            return [self.random.choices(keys, k=self.random.randrange(4))]
        key = pick(keys)
        if name == "COMPARE_SET":
            held = self.model.values.get(key, b"") if self.random.random() < 0.5 else self.value()
            return [key, held, self.value()]
        if name in ("SET", "APPEND", "QUEUE_PUSH"):
            return [key, self.value()]
        if name == "ADD":
            return [key, pick([1, 1, -1, 5, -(1 << 40), 1 << 62])]
        if name == "BARRIER":
            return [key, pick([-1, 0, 1, 2, 3, 50])]
        return [key]

    def request(self, connection, keys, alone, names=None):
        while True:
            (name,) = [self.random.choice(names)] if names else self.random.choices(self.names, self.weights)
            request = (name, *self.fields(name, keys))
            if self.defined(connection, request, alone):
                return request

    def defined(self, connection, request, alone):
        name, *fields = request
        model = self.model
        keys = []
        if fields and name != "PING":
            keys = fields[0] if isinstance(fields[0], list) else fields[:1]
            keys = [key[0] if isinstance(key, tuple) else key for key in keys]
        if name in ("ADD", "BARRIER"):
            number = model.number(keys[0])
            if number is None or not -(1 << 63) <= number + (1 if name == "BARRIER" else fields[1]) < 1 << 63:
                return False
        if name == "APPEND" and len(model.values.get(keys[0], b"")) > 2_000_000:
            return False
        if not alone and name in ("GETNUMKEYS", "LIST_KEYS"):
            return False
        if not self.libuv:
            if name in ("GET", "MULTI_GET") and any(key not in model.values for key in keys):
                return False
            if name == "COMPARE_SET" and (model.registrations[keys[0]] or not fields[1]):
                return False
            if name in ("ADD", "BARRIER") and connection in model.registrations[keys[0]]:
                return False
        return True

    # Turns

    def apply(self, connection, request):
        reply, woken = self.model.apply(connection, request)
        for other in woken:
            other.expected.append(("", b"\0"))
        connection.expected.append((request[0], reply))
        connection.log = connection.log[-40:] + [request]
        self.sent[request[0]] += 1

    def batch(self, connection, keys, alone):
        """The bytes of some requests and of a ping that follows them; the model has served them."""
        data = b""
        if connection.unfinished:
            request, data = connection.unfinished
            connection.unfinished = None
            self.apply(connection, request)
        for _ in range(self.random.choice([1, 2, 4, 8, 16])):
            if self.model.stale:
                break
            request = self.request(connection, keys, alone)
            data += encode(request)
            self.apply(connection, request)
        fence = ("PING", self.random.getrandbits(32))
        self.apply(connection, fence)
        return data + encode(fence)

    def pieces(self, data):
        """Whole, cut here and there, or byte by byte."""
        kind = self.random.random()
        if kind < 0.4:
            return [data]
        if kind < 0.45:
            return [data[i : i + 1] for i in range(min(200, len(data)))] + [data[200:]]
        cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(self.random.randrange(1, 6)))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]

    def turn(self):
        connection = self.random.choice(self.connections)
        data = self.batch(connection, KEYS, alone=True)
        in_order = connection not in self.model.outstanding and not self.model.stale
        if self.libuv and in_order and self.random.random() < 0.1:
            request = self.request(connection, KEYS, True, UNFINISHED)
            whole = encode(request)
            cut = self.random.randrange(1, len(whole))
            connection.unfinished = request, whole[cut:]
            data += whole[:cut]
        for piece in self.pieces(data):
            connection.send(piece)

    def turn_of_several(self):
        free = [connection for connection in self.connections if not connection.unfinished]
        several = self.random.sample(free, min(len(free), self.random.randrange(2, 5)))
        keys = self.random.sample(KEYS, len(KEYS))
        # A key that somebody waits for now is no one else's, whatever becomes of that wait during the turn.
        shares = [[key for key in keys[i :: len(several)] if not self.model.waits_of_others(connection, key)]
                  for i, connection in enumerate(several)]  # fmt: skip
        waiting = []
        for connection, share in zip(several, shares):
            if self.model.stale:
                break  # until that is over, nobody else's requests are defined
            if share:
                waiting.append((connection, self.pieces(self.batch(connection, share, alone=False))))
        while waiting:
            connection, pieces = self.random.choice(waiting)
            connection.send(pieces.pop(0))
            waiting = [(connection, pieces) for connection, pieces in waiting if pieces]

    def faulty_request(self):
        texts = [key for key, value in self.model.values.items() if StoreModel.number(self.model, key) is None]
        kinds = [VALIDATE, bytes([self.random.choice(UNKNOWN)])]
        if self.libuv:
            too_many = u64(131_073)
            kinds += [bytes([OPCODES[self.random.choice(["CHECK", "WAIT", "MULTI_GET", "MULTI_SET"])]]) + too_many]
            kinds += [bytes([OPCODES[self.random.choice(["GET", "ADD", "QUEUE_POP", "BARRIER"])]]) + u64(8193)]
            kinds += [encode(("SET", b"/0", b""))[:-8] + u64(8_388_609)]
        if texts:
            kinds += [encode(("ADD", self.random.choice(texts), 1))]
            kinds += [encode(("BARRIER", self.random.choice(texts), 1))]
        return self.random.choice(kinds)

    def end_of_one(self):
        """A connection ends, in one of several ways, and another takes its place."""
        place = self.random.randrange(CONNECTIONS)
        connection = self.connections[place]
        reset = connection not in self.model.outstanding and self.random.random() < 0.3
        half_close = self.random.random() < 0.5
        data = b""
        if not connection.unfinished:
            beginning = encode(self.request(connection, KEYS, True, ["SET", "WAIT", "CHECK", "ADD", "COMPARE_SET"]))
            data = beginning[:-1] if half_close or reset else self.faulty_request()
        for piece in self.pieces(data):
            with contextlib.suppress(ConnectionError):  # closed before all of a faulty request was sent
                connection.send(piece)
        if not reset:
            if half_close or connection.unfinished:
                for one in connection.sockets:
                    one.shutdown(socket.SHUT_WR)
            connection.receive_end()
            self.compare(connection)
        connection.close(reset)
        self.model.forget(connection)
        self.connections[place] = self.connect()
        self.endings += 1

    def cancel_stale(self):
        while self.model.stale:
            connection = next(other for other in self.connections if other in self.model.stale)
            for request in (("CANCEL_WAIT",), ("PING", self.random.getrandbits(32))):
                self.apply(connection, request)
                connection.send(encode(request))
            self.receive()

    def receive(self):
        for connection in self.connections:
            if connection.expected:
                connection.receive(sum(len(reply) for _, reply in connection.expected))
                self.compare(connection)

    def compare(self, connection):
        """Both servers' bytes, request by request; and the model's, or the test would not test what it says."""
        ours, theirs = map(bytes, connection.received)
        at = 0
        for name, reply in connection.expected:
            parts = [ours[at : at + len(reply)], theirs[at : at + len(reply)], reply]
            if name == "LIST_KEYS":
                parts = list(map(keys_of_list, parts))
            if not parts[0] == parts[1] == parts[2]:
                self.report(connection, name, *parts)
            at += len(reply)
        if not len(ours) == len(theirs) == at:
            self.report(connection, "nothing more", ours[at:], theirs[at:], b"")
        connection.expected.clear()
        for received in connection.received:
            received.clear()

    def report(self, connection, name, ours, theirs, model):
        last = "\n".join(str(request)[:200] for request in connection.log)
        self.test.fail(f"seed {SEED}, after {sum(self.sent.values())} requests, reply to {name}:\n"
                       f"  ours {ours!r:.300}\ntheirs {theirs!r:.300}\n model {model!r:.300}\n"
                       f"last requests of the connection:\n{last}")

    def run(self, requests):
        try:
            while sum(self.sent.values()) < requests:
                kind = self.random.random()
                if kind < 0.06:
                    self.end_of_one()
                elif kind < 0.3:
                    self.turn_of_several()
                else:
                    self.turn()
                self.receive()
                self.cancel_stale()
            for connection in self.connections:
                for one in connection.sockets:
                    one.shutdown(socket.SHUT_WR)
                connection.receive_end()
                self.compare(connection)
        finally:
            for connection in self.connections:
                connection.close()


class SameReplies(unittest.TestCase):
    def compare_with(self, use_libuv, *options):
        print(f"CPPRUN_STORE_SEED={SEED} CPPRUN_STORE_REQUESTS={REQUESTS}", flush=True)
        ours, theirs = OurServer(SERVER, *options), TorchServer(use_libuv)
        try:
            run = Differential(self, (ours.proxies or [ours.port], theirs.port), use_libuv, SEED)
            run.run(REQUESTS)
            print(run.sent, "endings:", run.endings)
            self.assertTrue(all(run.sent[name] > 0 for name in run.names) and run.endings > 0)
        finally:
            theirs.close()
            ours.close()

    def test_libuv_server(self):
        self.compare_with(True)

    def test_libuv_server_beside_two_proxies(self):
        """Every request takes the way through one of two proxies, under TLS."""
        with tempfile.NamedTemporaryFile() as secret:
            secret.write(os.urandom(32))
            secret.flush()
            self.compare_with(True, "--proxies", "2", "--secret", secret.name)

    def test_legacy_server(self):
        self.compare_with(False)


if __name__ == "__main__":
    unittest.main()
