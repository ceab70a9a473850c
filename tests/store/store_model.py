"""The store's semantics a third time, so that a driver of two servers knows which requests are defined and how many
bytes come back. A request is a tuple: its opcode's name and its fields; a connection is any hashable value.
"""

import collections
import re
import struct

OPCODES = {
    "SET": 1, "COMPARE_SET": 2, "GET": 3, "ADD": 4, "CHECK": 5, "WAIT": 6, "GETNUMKEYS": 7, "DELETE_KEY": 8,
    "APPEND": 9, "MULTI_GET": 10, "MULTI_SET": 11, "CANCEL_WAIT": 12, "PING": 13, "QUEUE_PUSH": 14, "QUEUE_POP": 15,
    "QUEUE_LEN": 16, "LIST_KEYS": 17, "BARRIER": 18,
}  # fmt: skip
VALIDATE = bytes.fromhex("00cef7853c")
STOP_WAITING, CANCELLED = b"\0", b"\1"


def u64(number):
    return struct.pack("<Q", number)


def i64(number):
    return struct.pack("<q", number)


def text(data):
    return u64(len(data)) + data


def encode(request):
    """The bytes of a request. Bytes are texts, numbers i64, lists a count and their items."""
    name, *fields = request
    out = bytes([OPCODES[name]])
    for field in fields:
        if isinstance(field, list):
            out += u64(len(field)) + b"".join(b"".join(map(text, item)) if isinstance(item, tuple) else text(item)
                                              for item in field)  # fmt: skip
        elif isinstance(field, bytes):
            out += text(field)
        else:
            out += struct.pack("<I", field) if name == "PING" else i64(field)
    return out


def leading_number(value):
    """As C's strtoll reads it; None without digits or beyond 64 bits."""
    match = re.match(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)", value)
    number = int(match[1]) if match else 1 << 63
    return number if -(1 << 63) <= number < 1 << 63 else None


class StoreModel:
    def __init__(self):
        self.values = {}
        self.queues = collections.defaultdict(collections.deque)
        self.registrations = collections.defaultdict(list)  # connections by key, oldest first
        self.outstanding = {}  # by connection with an open wait
        # Connections with a registration that LibTorch's libuv server keeps and that should be forgotten.
        self.stale = set()

    def apply(self, connection, request):
        """The reply, and the connections that are sent STOP_WAITING before it."""
        name, *fields = request
        return getattr(self, name.lower())(connection, *fields)

    def forget(self, connection):
        self.outstanding.pop(connection, None)
        self.stale.discard(connection)
        for waiting in self.registrations.values():
            waiting[:] = [other for other in waiting if other != connection]

    def waits_of_others(self, connection, key):
        return any(other != connection for other in self.registrations[key])

    def number(self, key):
        return leading_number(self.values.get(key, b"0"))

    def wake_all(self, key):
        woken = []
        for connection in self.registrations.pop(key, []):
            if connection not in self.outstanding:
                continue
            self.outstanding[connection] -= 1
            if self.outstanding[connection] == 0:
                self.end_wait(connection, woken)
        return woken

    def end_wait(self, connection, woken):
        del self.outstanding[connection]
        woken.append(connection)
        if any(connection in waiting for waiting in self.registrations.values()):
            self.stale.add(connection)

    def park(self, connection, keys):
        self.outstanding[connection] = len(keys)
        for key in keys:
            self.registrations[key].append(connection)
        return b"", []

    def set(self, _, key, value):
        self.values[key] = value
        return b"", self.wake_all(key)

    def compare_set(self, _, key, expected, desired):
        current = self.values.get(key)
        if current == expected or (current is None and expected == b""):
            current = self.values[key] = desired
        return text(expected if current is None else current), self.wake_all(key)

    def get(self, _, key):
        return text(self.values.get(key, b"")), []

    def add(self, _, key, delta):
        total = self.number(key) + delta
        self.values[key] = b"%d" % total
        return i64(total), self.wake_all(key)

    def ready(self, keys):
        return all(key in self.values or self.queues[key] for key in keys)

    def check(self, _, keys):
        return b"\0" if self.ready(keys) else b"\1", []

    def wait(self, connection, keys):
        if self.ready(keys):
            return STOP_WAITING, []
        return self.park(connection, [key for key in keys if key not in self.values])

    def getnumkeys(self, _):
        return i64(len(self.values)), []

    def delete_key(self, _, key):
        return i64(int(self.values.pop(key, None) is not None)), []

    def append(self, _, key, value):
        self.values[key] = self.values.get(key, b"") + value
        return b"", self.wake_all(key)

    def multi_get(self, _, keys):
        return b"".join(text(self.values.get(key, b"")) for key in keys), []

    def multi_set(self, _, pairs):
        woken = []
        for key, value in pairs:
            self.values[key] = value
            woken += self.wake_all(key)
        return b"", woken

    def cancel_wait(self, connection):
        self.forget(connection)
        return CANCELLED, []

    def ping(self, _, nonce):
        return struct.pack("<I", nonce), []

    def queue_push(self, _, key, value):
        self.queues[key].append(value)
        woken = []
        for connection in list(self.registrations[key]):
            self.stale.add(connection)
            if connection not in self.outstanding:
                continue
            self.registrations[key].remove(connection)
            self.outstanding[connection] -= 1
            if self.outstanding[connection] == 0:
                self.end_wait(connection, woken)
                break
        return b"", woken

    def queue_pop(self, _, key):
        queue = self.queues[key]
        return i64(len(queue)) + (text(queue.popleft()) if queue else b""), []

    def queue_len(self, _, key):
        return i64(len(self.queues[key])), []

    def list_keys(self, _):
        return i64(len(self.values)) + b"".join(map(text, self.values)), []

    def barrier(self, connection, key, world_size):
        arrived = self.number(key) + 1
        self.values[key] = b"%d" % arrived
        if arrived >= world_size:
            return STOP_WAITING, self.wake_all(key)
        return self.park(connection, [key])
