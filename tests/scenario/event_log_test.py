"""--event-log-handler: what happened to a job, as JSON lines."""
import json
import os
import signal
import unittest

from harness import ScenarioTest


class EventLog(ScenarioTest):
    def events(self, text):
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def short(self, events):
        return [(e["source"], e["metadata"]["state"], e["metadata"]["global_rank"], e["metadata"]["agent_restarts"])
                for e in events]

    def test_a_good_run_on_the_console(self):
        job = self.run_to_end("--nproc-per-node=2", "--rdzv-id=job", "--role=r", "--event-log-handler=console",
                              "--no-python", "true")
        self.assertEqual(job.code, 0, job.err)
        events = self.events(job.err)
        self.assertEqual(self.short(events),
                         [("AGENT", "RENDEZVOUS", None, 0), ("AGENT", "ASSIGN_WORKER_RANKS", None, 0),
                          ("WORKER", "START", 0, 0), ("WORKER", "START", 1, 0), ("WORKER", "SUCCEEDED", 0, 0),
                          ("WORKER", "SUCCEEDED", 1, 0), ("AGENT", "SUCCEEDED", None, 0)])
        for event in events:
            self.assertEqual(list(event), ["name", "source", "timestamp", "metadata"])
            metadata = event["metadata"]
            self.assertEqual(list(metadata), ["run_id", "global_rank", "group_rank", "worker_id", "role", "hostname",
                                              "state", "total_run_time", "rdzv_backend", "raw_error", "metadata",
                                              "agent_restarts", "duration_ms"])
            self.assertEqual(event["name"], "torchelastic.worker.status." + metadata["state"])
            self.assertEqual((metadata["run_id"], metadata["role"], metadata["group_rank"]), ("job", "r", 0))
            self.assertEqual(metadata["duration_ms"] is not None,
                             metadata["state"] in ("RENDEZVOUS", "ASSIGN_WORKER_RANKS"))
            inner = json.loads(metadata["metadata"])
            self.assertEqual((inner["group_world_size"], inner["entry_point"]), (1, "true"))
        started, ended = events[2], events[4]
        self.assertEqual(started["metadata"]["worker_id"], ended["metadata"]["worker_id"])
        self.assertEqual(json.loads(ended["metadata"]["metadata"])["exit_code"], [0])
        self.assertGreater(events[0]["timestamp"], 1_700_000_000_000)
        self.assertEqual(sorted(e["timestamp"] for e in events), [e["timestamp"] for e in events])

    def test_failures_and_restarts_in_a_file(self):
        # Rank 0 fails when rank 1 is there; in the second attempt all end well.
        self.script("w.sh", '[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\ntouch $CASE/up.$RANK\n'
                            '[ $RANK = 1 ] && exec sleep 300\nuntil [ -e $CASE/up.1 ]; do sleep 0.01; done\n'
                            'echo \'{"message": {"message": "E: x"}}\' > $TORCHELASTIC_ERROR_FILE; exit 7')
        self.write("events", "kept\n")
        job = self.run_to_end("--nproc-per-node=2", "--max-restarts=1", "--event-log-handler", "file:events", "./w.sh")
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(self.events(job.err), [])
        text = self.read("events")
        self.assertTrue(text.startswith("kept\n"))  # it is appended to
        events = self.events(text)
        self.assertEqual(self.short(events),
                         [("AGENT", "RENDEZVOUS", None, 0), ("AGENT", "ASSIGN_WORKER_RANKS", None, 0),
                          ("WORKER", "START", 0, 0), ("WORKER", "START", 1, 0), ("AGENT", "STOPPING", None, 0),
                          ("WORKER", "FAILED", 0, 0), ("WORKER", "TERMINATED", 1, 0), ("AGENT", "RENDEZVOUS", None, 1),
                          ("AGENT", "ASSIGN_WORKER_RANKS", None, 1), ("WORKER", "START", 0, 1),
                          ("WORKER", "START", 1, 1), ("WORKER", "SUCCEEDED", 0, 1), ("WORKER", "SUCCEEDED", 1, 1),
                          ("AGENT", "SUCCEEDED", None, 1)])
        self.assertEqual(json.loads(events[4]["metadata"]["raw_error"])["message"], "SIGTERM")
        self.assertEqual(json.loads(events[5]["metadata"]["raw_error"])["message"]["message"], "E: x")
        self.assertEqual(json.loads(events[5]["metadata"]["metadata"])["exit_code"], [7])
        self.assertEqual(json.loads(events[6]["metadata"]["metadata"])["exit_code"], [-15])

    def test_a_stop_is_a_failure_of_the_agent(self):
        job = self.start("--event-log-handler=file:events", "--no-python", "bash", "-c", "touch $CASE/up; exec sleep 300")
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.end(), 128 + signal.SIGTERM)
        last = self.events(self.read("events"))[-1]
        self.assertEqual((last["source"], last["metadata"]["state"]), ("AGENT", "FAILED"))
        self.assertIn("SIGTERM", last["metadata"]["raw_error"])

    def test_nothing_where_nothing_is_wanted(self):
        for name in ("null", "dynamic_rendezvous"):
            job = self.run_to_end("--event-log-handler", name, "--no-python", "true")
            self.assertEqual(job.code, 0, job.err)
            self.assertEqual(self.events(job.err), [])

    def test_a_file_that_cannot_be_opened(self):
        os.mkfifo(self.path("fifo"))
        for path in ("no/such/folder", "fifo", "."):
            job = self.run_to_end("--event-log-handler=file:" + path, "--no-python", "touch", self.path("ran"))
            self.assertEqual(job.code, 2, job.err)
            self.assertIn(f"--event-log-handler: cannot open the event log {path}", job.err)
            self.assertFalse(os.path.exists(self.path("ran")))
            self.assert_tmp_empty()


if __name__ == "__main__":
    unittest.main()
