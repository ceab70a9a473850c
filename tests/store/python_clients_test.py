"""Python's TCPStore and PrefixStore clients against our server and against torch's own servers: the same calls must
give the same results.
"""

import datetime
import os
import sys
import threading
import unittest

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
import torch.distributed as dist  # noqa: E402
from servers import OurServer, TorchServer  # noqa: E402

SERVER = sys.argv.pop(1)
SHORT = datetime.timedelta(milliseconds=100)


def outcome(call, *args):
    """A call's result, or the kind of its error and the first words of its message."""
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - whatever torch throws is what is compared
        return type(error).__name__, str(error).split("\n")[0][:40]


def usability(client):
    """What a call left behind: a client that works, or one whose every call fails."""
    outcome(client.num_keys)  # a connection that was closed is noticed now at the latest
    yield outcome(client.set, "still", "alive")
    yield outcome(client.get, "still")


def basics(store, _):
    yield store.set("a", "1")
    yield store.get("a")
    yield store.set("a", b"\x00\xff")
    yield store.get("a")
    yield store.set("empty", "")
    yield store.get("empty")
    yield store.add("n", 5)
    yield store.add("n", -7)
    yield store.get("n")
    yield store.check(["a", "n"])
    yield store.check(["a", "absent"])
    yield store.check([])
    yield store.num_keys()
    yield store.delete_key("a")
    yield store.delete_key("a")
    yield sorted(store.list_keys())
    yield store.append("log", "ab")
    yield store.append("log", "cd")
    yield store.get("log")
    yield store.multi_set(["m1", "m2"], ["x", "yy"])
    yield store.multi_get(["m2", "m1"])
    yield store.multi_get([])
    yield store.has_extended_api()
    yield store.set("\0\n/", "\0")
    yield store.get("\0\n/")
    yield store.set("", "no name")
    yield store.get("")
    big = "v" * 1_000_000
    yield store.set("big", big)
    yield store.get("big") == big.encode()


def compare_set(store, _):
    yield store.compare_set("k", "", "one")
    yield store.compare_set("k", "one", "two")
    yield store.compare_set("k", "wrong", "three")
    yield store.compare_set("absent", "expected", "desired")
    yield store.check(["absent"])


def waits(store, other):
    yield outcome(store.wait, ["absent"], SHORT)
    yield from usability(store)
    yield outcome(store.wait, ["absent"], datetime.timedelta(milliseconds=1))
    yield store.wait([])
    yield store.add("n", 1)
    yield outcome(store.wait, ["absent", "n"], SHORT)
    store.set_timeout(SHORT)
    yield outcome(store.get, "absent")
    yield outcome(store.multi_get, ["n", "absent"])
    yield from usability(store)
    store.set_timeout(datetime.timedelta(seconds=60))
    for write in (
        lambda: other.set("w0", "v"),
        lambda: other.add("w1", 1),
        lambda: other.append("w2", "v"),
        lambda: other.multi_set(["w3"], ["v"]),
    ):
        writer = threading.Thread(target=write)
        writer.start()
        yield store.wait(["w%d" % waits.written])
        writer.join()
        waits.written += 1


def wait_met_by_compare_set(store, other):
    writer = threading.Thread(target=other.compare_set, args=("k", "", "v"))
    writer.start()
    yield store.wait(["k"])
    writer.join()
    yield store.get("k")


def queues(store, other):
    yield store.queue_len("q")
    yield outcome(store.queue_pop, "q", False)
    yield from usability(store)
    yield store.queue_push("q", "one")
    yield store.queue_push("q", "two")
    yield store.queue_len("q")
    yield store.check(["q"])
    yield store.num_keys()
    yield store.queue_pop("q")
    yield store.queue_pop("q")
    pusher = threading.Thread(target=other.queue_push, args=("q", "three"))
    pusher.start()
    yield store.queue_pop("q")
    pusher.join()
    store.set_timeout(SHORT)
    yield outcome(store.queue_pop, "q")
    yield from usability(store)


def barriers(store, other):
    if not hasattr(store, "barrier"):
        return
    yield outcome(store.barrier, "alone", 1)
    yield outcome(store.barrier, "too few", 2, SHORT)
    yield from usability(store)
    peer = threading.Thread(target=other.barrier, args=("pair", 2))
    peer.start()
    yield store.barrier("pair", 2)
    peer.join()


def counting_text(store, other):
    yield store.set("text", "abc")
    yield outcome(store.add, "text", 1)[0]  # the messages name addresses
    yield [kind for kind, _ in usability(store)]
    yield from usability(other)
    yield other.get("text")


def long_key(store, other):
    longest = "k" * (8192 - len("/outer/p/"))
    yield store.set(longest, "v")
    yield store.get(longest)
    yield outcome(store.get, "k" * 8192)[0]
    yield from usability(other)


def long_value(store, other):
    longest = "v" * 8_388_608
    yield store.set("longest", longest)
    yield store.get("longest") == longest.encode()
    outcome(store.set, "longer", longest + "v")  # noticed now or with the next call
    yield outcome(store.num_keys)[0]
    yield other.check(["longer"])


def many_keys(store, other):
    yield outcome(store.check, ["k"] * 131_073)[0]
    yield [kind for kind, _ in usability(store)]
    yield from usability(other)


def absent_values(store, _):
    yield store.check(["absent"])
    store.set_timeout(SHORT)
    yield outcome(store.get, "absent")


BOTH_KINDS = [basics, compare_set, waits, barriers, counting_text, absent_values]
LIBUV_ONLY = [queues, wait_met_by_compare_set, long_key, long_value, many_keys]


class Proxied:
    """Our server behind a proxy of its own."""

    def __init__(self, program):
        self.server = OurServer(program, "--proxies", "1")
        (self.port,) = self.server.proxies

    def close(self):
        self.server.close()


class PythonClients(unittest.TestCase):
    maxDiff = None

    def results(self, server, scenario, prefixed):
        try:
            store, other = (dist.TCPStore("127.0.0.1", server.port, None, False) for _ in range(2))
            if prefixed:
                store, other = dist.PrefixStore("outer", dist.PrefixStore("p", store)), dist.PrefixStore(
                    "outer", dist.PrefixStore("p", other)
                )
            waits.written = 0
            return list(scenario(store, other))
        finally:
            server.close()

    def compare(self, scenario, use_libuv, our_kind=OurServer):
        for prefixed in (False, True):
            with self.subTest(scenario=scenario.__name__, use_libuv=use_libuv, prefixed=prefixed):
                ours = self.results(our_kind(SERVER), scenario, prefixed)
                theirs = self.results(TorchServer(use_libuv), scenario, prefixed)
                self.assertEqual(ours, theirs)
                self.assertGreater(len(ours), 0)

    def test_as_the_libuv_server(self):
        for scenario in BOTH_KINDS + LIBUV_ONLY:
            self.compare(scenario, True)

    def test_a_proxy_as_the_libuv_server(self):
        for scenario in BOTH_KINDS + LIBUV_ONLY:
            self.compare(scenario, True, Proxied)

    def test_as_the_legacy_server(self):
        for scenario in BOTH_KINDS:
            self.compare(scenario, False)

    def test_check_in_of_workers(self):
        server = OurServer(SERVER)
        stores = [dist.TCPStore("127.0.0.1", server.port, 3, False) for _ in range(3)]
        self.assertEqual(stores[0].num_keys(), 1)
        self.assertEqual(stores[0].list_keys(), [])  # the check-in key has no slash
        server.close()

    def test_the_servers_death_wakes_a_wait(self):
        server = OurServer(SERVER)
        store = dist.TCPStore("127.0.0.1", server.port, None, False)
        closer = threading.Timer(0.05, server.close)
        closer.start()
        with self.assertRaises(dist.DistNetworkError):
            store.wait(["never"], datetime.timedelta(minutes=5))
        closer.join()


if __name__ == "__main__":
    unittest.main()
