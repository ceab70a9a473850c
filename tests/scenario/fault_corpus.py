"""Faults that workers of one node inject into themselves, and what cpprun must make of each: root-cause rank and class.

A worker is a shell script with $RANK and $PY (a Python); rank 1 of two fails unless the fault says otherwise.
"""
from dataclasses import dataclass

REST = "\nexec sleep 300\n"


@dataclass
class Fault:
    name: str
    cls: str
    script: str
    rank: int = 1
    workers: int = 2
    options: tuple = ()
    program: tuple = ()  # instead of the script


def on_rank_1(text):
    return f"ulimit -c 0\nif [ $RANK = 1 ]; then\n{text}\nfi{REST}"


def python(code):
    return on_rank_1(f"exec $PY -c '{code}'")


def says(text, end):
    """Rank 1 writes that to stderr, as programs and libraries do, and ends so."""
    return on_rank_1(f"cat >&2 <<'WORDS'\n{text}\nWORDS\n{end}")


def raised(error):
    return f"Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    step()\n{error}"


CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41234"
WATCHDOG = """terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught
collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE) ran for 600012 milliseconds before timing out."""
DAMAGED = """cpprun-train: no checkpoint in /ckpt can be used; the newest: checkpoint /ckpt/step_30 cannot be used: the
manifest is no JSON text: it was cut short or changed"""

# Rank 0 says that its peer is gone, after rank 1 has done something.
PEER = f"""
until [ -e $CASE/$NAME.first ]; do sleep 0.01; done
sleep 0.1
cat >&2 <<'WORDS'
{raised(CLOSED)}
WORDS
exit 1
"""


def followed(cause):
    return f"ulimit -c 0\nif [ $RANK = 1 ]; then\ntouch $CASE/$NAME.first\n{cause}\nfi{PEER}"


def noticed_first(cause):
    """Rank 0's complaint comes before the end of rank 1, whose own cause it is."""
    return f"""ulimit -c 0
if [ $RANK = 1 ]; then
trap '' TERM
touch $CASE/$NAME.first
until [ -e $CASE/$NAME.gone ]; do sleep 0.01; done
sleep 0.3
{cause}
fi
(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; touch $CASE/$NAME.gone) &
{PEER}"""


FAULTS = [
    Fault("python_exception", "exception", python("raise ValueError(\"bad shape\")")),
    Fault("recorded_exception", "exception", "import os, time\nif os.environ['RANK'] == '1': {}['x']\ntime.sleep(300)\n",
          options=("--run-path",)),
    Fault("exit_code", "exit_code", on_rank_1("exit 7")),
    Fault("sigsegv", "segmentation_fault", on_rank_1("kill -SEGV $$")),
    Fault("null_pointer", "segmentation_fault", python("import ctypes; ctypes.string_at(0)")),
    Fault("sigbus", "signal", on_rank_1("kill -BUS $$")),
    Fault("sigill", "signal", on_rank_1("kill -ILL $$")),
    Fault("sigfpe", "signal", on_rank_1("kill -FPE $$")),
    Fault("abort", "abort", python("import os; os.abort()")),
    Fault("terminate", "abort", says("terminate called after throwing an instance of 'std::logic_error'\n"
                                     "  what():  no batch", "kill -ABRT $$")),
    Fault("sigpipe", "signal", on_rank_1("trap - PIPE; kill -PIPE $$")),
    Fault("bad_alloc", "out_of_memory", python("import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30));"
                                               " bytearray(2**33)")),
    Fault("gpu_memory", "out_of_memory", says(raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                                                     "2.00 GiB. GPU 0 has 1.10 GiB free."), "exit 1")),
    Fault("gpu_ecc", "gpu_error", says(raised("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"),
                                       "exit 1")),
    Fault("disk_full", "disk_full", python("f = open(\"/dev/full\", \"w\"); f.write(\"x\"); f.flush()")),
    Fault("quota", "disk_full", says(raised("OSError: [Errno 122] Disk quota exceeded: 'step_30'"), "exit 1")),
    Fault("missing_module", "import_error", python("import no_such_module")),
    Fault("missing_library", "import_error", python("import ctypes; ctypes.CDLL(\"libno_such.so.1\")")),
    Fault("loader", "import_error", on_rank_1("exec $CASE/needs_more")),
    Fault("command_not_found", "exec_failure", on_rank_1("no_such_program; exit $?")),
    Fault("wrong_interpreter", "exec_failure", "", rank=0, workers=1, program=("./wrong_interpreter",)),
    Fault("broken_program", "exec_failure", "", rank=0, workers=1, program=("./broken_program",)),
    Fault("port_taken", "address_in_use", python("import os, socket; s = socket.socket();"
                                                 " s.bind((\"127.0.0.1\", int(os.environ[\"TAKEN\"])))")),
    Fault("damaged_checkpoint", "checkpoint_corrupt", says(DAMAGED, "exit 2")),
    Fault("damaged_pickle", "checkpoint_corrupt",
          python("import pickle; pickle.loads(b\"\\x00\")")),
    Fault("gloo_timeout", "timeout", says(raised("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
                                                 "waiting 1800000ms for recv operation to complete"), "exit 1")),
    Fault("nccl_timeout", "timeout", says(WATCHDOG, "kill -ABRT $$")),
    Fault("store_lost", "store_lost", says(raised("torch.distributed.DistNetworkError: failed to recv, got 0 bytes. "
                                                  "Connection was likely closed. Did the remote server shutdown or "
                                                  "crash?"), "exit 1")),
    # Peers that fail as a consequence, after and before what they follow from.
    Fault("peer_after_segfault", "segmentation_fault", followed("kill -SEGV $$")),
    Fault("peer_after_exception", "exception", followed("exec $PY -c 'raise ValueError(3)'")),
    Fault("peer_before_exception", "exception", noticed_first("exec $PY -c 'raise ValueError(3)'")),
    Fault("peer_before_abort", "abort", noticed_first("kill -ABRT $$")),
    Fault("peer_before_exit", "exit_code", noticed_first("exit 9")),
    Fault("two_100_ms_apart", "exit_code", "trap '' TERM\nif [ $RANK = 1 ]; then touch $CASE/$NAME.first; exit 5; fi\n"
                                           "until [ -e $CASE/$NAME.first ]; do sleep 0.01; done\nsleep 0.1\nexit 6\n"),
]
