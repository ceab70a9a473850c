"""Jobs over several hosts, and what their workers note: who started as which rank of which world.

Used by the scenario tests of hosts, by those with torch, and by scripts/bench/elastic. All hosts share a folder, $CASE:
    starts        a line of JSON for each start of a worker
    lives/        a file for each start, locked as long as that worker lives
    end           when it is there, the workers end well
    fail.<n>.<r>  when it is there, the worker of attempt n with rank r exits 9
"""
import json
import os
import signal
import subprocess
import time

from harness import CPPRUN, LIMIT, Job, ScenarioTest, children, until
from hosts import Network

PORT = 29400

# A worker also tries to reach rank 0's store, and looks for live workers that cannot belong to the same world.
WORKER = """
import time
began = time.monotonic()
import fcntl, json, os, re, signal, socket
if os.environ.get("STUBBORN") == os.uname().nodename:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
case, host = os.environ["CASE"], os.uname().nodename
attempt = int(re.search(r"attempt_([0-9]+)/", os.environ["TORCHELASTIC_ERROR_FILE"])[1])
master = [os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
world, lives = [attempt, size, *master], os.path.join(case, "lives")

mine = f"{attempt}.{rank}.{host}.{os.getpid()}"
life = open(os.path.join(lives, mine), "w")
fcntl.flock(life, fcntl.LOCK_EX)
json.dump([world, rank], life)
life.flush()

def lives_on(name):
    with open(os.path.join(lives, name)) as other:
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = other.read()
            return json.loads(text) if text else None

clashes = []
for name in os.listdir(lives):
    other = lives_on(name) if name != mine else None
    if other and (other[0] != world or other[1] == rank):
        clashes.append(name)

def reach():
    with socket.socket(socket.AF_INET6 if ":" in master[0] else socket.AF_INET) as store:
        store.settimeout(10)
        try:
            store.connect(tuple(master))
            return "reached"
        except OSError as error:
            return str(error)

restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
line = json.dumps({"host": host, "attempt": attempt, "rank": rank, "size": size, "restarts": restarts, "master": master,
                   "store": reach(), "clashes": clashes, "time": began})
log = os.open(os.path.join(case, "starts"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(log, line.encode() + b"\\n")
while not os.path.exists(os.path.join(case, "end")):
    if os.path.exists(os.path.join(case, f"fail.{attempt}.{rank}")):
        raise SystemExit(9)
    time.sleep(0.02)
"""


def elastic():
    """Whether this cpprun knows jobs whose number of nodes changes."""
    done = subprocess.run([CPPRUN, "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{PORT}",
                           "--dry-run", "--no-python", "true"], capture_output=True)
    return done.returncode == 0


class Node(Job):
    """A cpprun on a host. What it writes can be read while it runs."""

    def __init__(self, host, folder, arguments, trace=(), **options):
        self.host = host
        self.temporary = os.path.join(folder, f"tmp.{host.name}")
        os.makedirs(self.temporary, exist_ok=True)
        self._files = [os.path.join(folder, f"{kind}.{host.name}.{time.monotonic_ns()}") for kind in ("out", "err")]
        out, err = (open(path, "wb") for path in self._files)
        environment = {"TMPDIR": self.temporary, **options.pop("env", {})}
        with out, err:
            super().__init__(folder, arguments, wrap=(*host.enter(folder), *trace), env=environment,
                             stdout=out, stderr=err, **options)

    @property
    def pid(self):
        """Of the guardian, as the machine counts."""
        found = until(lambda: self.process.poll() is not None or children(self.process.pid))
        return found[0] if isinstance(found, list) else self.process.pid

    def signal(self, number):
        os.kill(self.pid, number)

    def said(self):
        """What it wrote to stderr so far."""
        with open(self._files[1], "rb") as f:
            return f.read().decode("utf-8", "replace")

    def end(self, limit=LIMIT):
        super().end(limit)
        with open(self._files[0], "rb") as f:
            self.out = f.read().decode("utf-8", "replace")
        self.err = self.said()
        return self.process.returncode


class HostsTest(ScenarioTest):
    """Starts nodes of one job on hosts, and looks at the worlds that its workers form."""

    def setUp(self):
        super().setUp()
        self.nodes = {}  # the latest of each host, by the host's name
        self.seen = -1  # the attempt that was looked at last
        self.network = None

    def tearDown(self):
        super().tearDown()
        if self.network:
            self.network.close()

    def make_hosts(self, *names, **options):
        self.network = Network(self.folder, names, **options)
        self.write("worker.py", WORKER)
        os.mkdir(self.path("lives"))

    def endpoint(self, *names):
        return ",".join(f"{self.network[name].v4()}:{PORT}" for name in names)

    def node(self, name, *arguments, nnodes, endpoint, max_restarts=0, nproc=1, conf="last_call_timeout=2",
             program=("worker.py",), **options):
        """Starts the job's cpprun on that host."""
        job = Node(self.network[name], self.folder,
                   ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job", f"--rdzv-conf={conf}",
                    f"--nnodes={nnodes}", f"--nproc-per-node={nproc}", f"--max-restarts={max_restarts}",
                    *arguments, *program],
                   **options)
        self.jobs.append(job)
        self.nodes[name] = job
        return job

    def start_nodes(self, *names, **options):
        for name in names:
            self.node(name, **options)

    def starts(self):
        try:
            return [json.loads(line) for line in self.read("starts").splitlines()]
        except FileNotFoundError:
            return []

    def story(self):
        """All that is known of the job, for a failed test."""
        lines = [json.dumps(start) for start in self.starts()]
        for name, node in self.nodes.items():
            lines += [f"--- {name}, exit code {node.process.poll()}", node.said()]
        return "\n".join(["", *lines])

    def see(self, condition, what, limit=LIMIT):
        """Waits until condition() is true, while nodes run; what it gave."""
        until(lambda: condition() or all(node.process.poll() is not None for node in self.nodes.values()), limit)
        found = condition()
        if not found:
            self.fail(f"never seen: {what}{self.story()}")
        return found

    def _worlds(self):
        """The complete worlds after the last seen one: {attempt: its starts by rank}."""
        worlds = {}
        for start in self.starts():
            if start["attempt"] > self.seen:
                worlds.setdefault(start["attempt"], {})[start["rank"]] = start
        return {attempt: [world[rank] for rank in sorted(world)] for attempt, world in worlds.items()
                if len(world) == world[min(world)]["size"]}

    def next_world(self, *hosts):
        """Waits for the next world of workers; its members must be on these hosts, by rank. Its starts by rank."""
        worlds = self.see(self._worlds, f"a world after attempt {self.seen}")
        self.assertEqual(len(worlds[min(worlds)]), len(hosts), self.story())
        return self._look_at(worlds, min(worlds), hosts)

    def later_world(self, *hosts, then):
        """Waits for a world of these hosts, by rank, and after them the hosts of `then` in any order; they may have
        come one by one, so that worlds of fewer lie before. Its starts by rank."""
        whole = sorted([*hosts, *then])
        worlds = self.see(lambda: {attempt: world for attempt, world in self._worlds().items()
                                   if sorted(start["host"] for start in world) == whole},
                          f"a world of {whole} after attempt {self.seen}")
        return self._look_at(worlds, min(worlds), hosts)

    def _look_at(self, worlds, attempt, hosts):
        world = worlds[attempt]
        self.assertEqual([start["host"] for start in world][:len(hosts)], list(hosts), self.story())
        self.assertEqual({start["store"] for start in world}, {"reached"}, self.story())
        self.assert_no_clash()
        self.seen = attempt
        return world

    def assert_no_clash(self):
        """No worker started while one of another world, or one of its own rank, was alive."""
        self.assertEqual([start for start in self.starts() if start["clashes"]], [], self.story())

    def see_spare(self, name):
        """Waits until that host's node knows that it is beyond the job's largest size."""
        self.see(lambda: "spare" in self.nodes[name].said(), f"{name} says that it is a spare")

    def kill_agent(self, name):
        """As the kernel kills when memory is short; the guardian then ends the workers."""
        os.kill(self.nodes[name].agent(), signal.SIGKILL)
        self.assertEqual(self.nodes[name].end(), 128 + signal.SIGKILL)
        self.assert_nothing_left(self.nodes[name])

    def end_well(self, *names):
        """Lets the workers end; these hosts' cppruns must all exit 0 and leave nothing."""
        self.write("end", "")
        for name in names:
            self.assertEqual(self.nodes[name].end(), 0, name + self.story())
        for name in names:
            self.assert_nothing_left(self.nodes[name])
            self.assertEqual(os.listdir(self.nodes[name].temporary), [])
        self.assert_no_clash()

    def restarts(self):
        return {start["restarts"] for start in self.starts()}
