"""Workers restart together, within the budget, each attempt with logs and a store of its own."""
import os
import socket
import struct
import unittest

from harness import ScenarioTest, until


class Restarts(ScenarioTest):
    def test_budget_is_exact(self):
        # Rank 0 fails only when rank 1 has said that it is there.
        self.script("w.sh", 'echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS >> $CASE/starts.$RANK; '
                            'touch $CASE/up.$RANK.$TORCHELASTIC_RESTART_COUNT\n[ $RANK = 1 ] && exec sleep 300\n'
                            'until [ -e $CASE/up.1.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; exit 1')
        job = self.run_to_end("--nproc-per-node=2", "--max-restarts=2", "./w.sh")
        self.assertEqual(job.code, 1)
        self.assertIn("stopping the other workers", job.err)
        for rank in (0, 1):
            self.assertEqual(self.read(f"starts.{rank}"), "0 2\n1 2\n2 2\n")
        self.assert_nothing_left(job)

    def test_a_refused_configuration_is_not_tried_again(self):
        self.script("w.sh", 'echo x >> $CASE/starts; echo "{\\"message\\": {\\"message\\": \\"no such key\\", '
                            '\\"errorCode\\": 2}}" > $TORCHELASTIC_ERROR_FILE; exit 2')
        job = self.run_to_end("--max-restarts=3", "./w.sh")
        self.assertEqual(job.code, 1)
        self.assertEqual(self.read("starts"), "x\n")
        self.assertIn("not restarted", job.err)

    def test_logs_of_every_attempt_stay(self):
        self.script("w.sh", "echo out $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))")
        job = self.run_to_end("--max-restarts=3", "--log-dir=logs", "-r3", "./w.sh")
        self.assertEqual(job.code, 0, job.err)
        (run,) = os.listdir(self.path("logs"))
        for attempt in (0, 1):
            self.assertEqual(self.read("logs", run, f"attempt_{attempt}", "0", "stdout.log"), f"out {attempt}\n")
        self.assertTrue(os.path.exists(self.path("logs", run, "attempt_0", "failure.json")))
        self.assertFalse(os.path.exists(self.path("logs", run, "attempt_1", "failure.json")))

    def test_helpers_of_the_failed_attempt_are_gone(self):
        self.script("w.sh", 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then setsid sleep 300 & echo $! > $CASE/helper; '
                            'exit 9; fi; kill -0 $(cat $CASE/helper) 2>/dev/null && exit 1; exit 0')
        job = self.run_to_end("--max-restarts=1", "./w.sh")
        self.assertEqual(job.code, 0, job.err)

    def test_files_of_the_agent_do_not_grow(self):
        self.script("w.sh", 'touch $CASE/at.$TORCHELASTIC_RESTART_COUNT\n'
                            'until [ -e $CASE/go.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; exit 1')
        job = self.start("--max-restarts=9", "-t3", "./w.sh")
        agent = job.agent()
        open_files = []
        for attempt in range(10):
            self.wait_for_files(f"at.{attempt}")
            open_files.append(len(os.listdir(f"/proc/{agent}/fd")))
            self.write(f"go.{attempt}", "")
        self.assertEqual(job.end(), 1)
        # A file that it reads at that moment may be open beside those that stay.
        self.assertEqual(min(open_files[:5]), min(open_files[5:]), open_files)


def store_request(port, payload, reply_size):
    """Speaks the store's protocol by hand: validate, then one request."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE) + payload)
        reply = b""
        while len(reply) < reply_size:
            piece = connection.recv(reply_size - len(reply))
            if not piece:
                raise AssertionError("the store closed the connection")
            reply += piece
        return reply


class WorkerStore(ScenarioTest):
    ADD = b"\x04" + struct.pack("<Q", 2) + b"/k" + struct.pack("<q", 1)

    def test_each_attempt_finds_an_empty_store(self):
        self.script("w.sh", 'echo $MASTER_PORT > $CASE/port.$TORCHELASTIC_RESTART_COUNT.tmp; '
                            'mv $CASE/port.$TORCHELASTIC_RESTART_COUNT.tmp $CASE/port.$TORCHELASTIC_RESTART_COUNT\n'
                            'until [ -e $CASE/go.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; '
                            'exit $((1 - TORCHELASTIC_RESTART_COUNT))')
        job = self.start("--max-restarts=1", "./w.sh")
        for attempt in (0, 1):
            self.wait_for_files(f"port.{attempt}")
            port = int(self.read(f"port.{attempt}"))
            self.assertEqual(store_request(port, self.ADD, 8), struct.pack("<q", 1))
            self.assertEqual(store_request(port, self.ADD, 8), struct.pack("<q", 2))
            self.write(f"go.{attempt}", "")
        self.assertEqual(job.end(), 0, job.err)

    def test_standalone_listens_on_loopback_only(self):
        self.script("w.sh", "echo $MASTER_PORT > $CASE/port; sleep 300")
        job = self.start("--standalone", "./w.sh")
        self.assertTrue(until(lambda: os.path.exists(self.path("port")) and self.read("port")))
        wanted = "%04X" % int(self.read("port"))
        listening = []
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as f:
                for line in f.readlines()[1:]:
                    local, state = line.split()[1], line.split()[3]
                    if state == "0A" and local.endswith(":" + wanted):
                        listening.append(local)
        self.assertEqual(listening, ["0100007F:" + wanted])


if __name__ == "__main__":
    unittest.main()
