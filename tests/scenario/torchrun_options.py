"""torchrun 2.15's options and variables, as cpprun must know them; tests/torch asks torchrun itself.

Each option has a value that differs from its default where there is another (None for a flag), and one that is wrong
(None where any text is right). `beside` are options without which a good value would not show.
"""
import collections

Option = collections.namedtuple("Option", "name short default good bad variable beside", defaults=(True, ()))

OPTIONS = [
    Option("--nnodes", None, "1:1", "1", "2:1"),
    Option("--nproc-per-node", None, "1", "3", "several"),
    Option("--rdzv-backend", None, "static", "c10d", "c10"),
    Option("--rdzv-endpoint", None, "", "localhost:29511", "!!"),
    Option("--rdzv-id", None, "none", "job-7", None),
    Option("--rdzv-conf", None, "", "join_timeout=11", "join_timeout"),
    Option("--standalone", None, None, None, "maybe", True, ("--master-port=29512",)),
    Option("--max-restarts", None, 0, "4", "-1"),
    Option("--monitor-interval", None, 0.1, "0.5", "0"),
    Option("--start-method", None, "spawn", "fork", "forked"),
    Option("--event-log-handler", None, "null", "console", "consol"),
    Option("--role", None, "default", "trainer", None),
    Option("--module", "-m", None, None, "maybe"),
    Option("--no-python", None, None, None, "maybe"),
    Option("--run-path", None, None, None, "maybe"),
    Option("--log-dir", None, None, "logs", None),
    Option("--redirects", "-r", "0", "3", "4"),
    Option("--tee", "-t", "0", "0:3,1:1", "0:4"),
    Option("--log-line-prefix-template", None, "", "<${rank}> ", None, True, ("--tee=3",)),
    Option("--local-ranks-filter", None, "", "1", "one"),
    Option("--duplicate-stdout-filters", None, "", "loss", None, True, ("--tee=3",)),
    Option("--duplicate-stderr-filters", None, "", "loss", None, True, ("--tee=3",)),
    Option("--node-rank", None, 0, "0", "1"),
    Option("--master-addr", None, "127.0.0.1", "localhost", "!!", True, ("--master-port=29513",)),
    Option("--master-port", None, None, "29514", "65536"),
    Option("--local-addr", None, None, "127.0.0.1", "!!"),
    Option("--logs-specs", None, None, "default", "custom", False),
    Option("--numa-binding", None, None, "node", "nod", False),
    Option("--signals-to-handle", None, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "SIGTERM,SIGUSR1", "SIGNOPE"),
    Option("--shutdown-timeout", None, None, "5", "-1"),
    Option("--virtual-local-rank", None, None, None, "maybe"),
    Option("--print-completion", None, None, "bash", "tcsh", False),
]
# Of ours; they follow the same rules.
OWN_OPTIONS = [
    Option("--gpus", None, None, "2,4", "1,1"),
    Option("--config", None, None, None, "no-such-file.json"),
    Option("--hang-detection", None, "off", "on", "maybe"),
    Option("--dry-run", None, None, None, "maybe"),
]
# What a worker is told.
WORKER_VARIABLES = [
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCHELASTIC_SIGNALS_TO_HANDLE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
    "TORCHELASTIC_TIMER_FILE",
]
# What the launcher itself reads, and what workers read of the store.
AGENT_VARIABLES = [
    "PET_*", "PYTHON_EXEC", "OMP_NUM_THREADS", "LOGLEVEL", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_WORKER_IDENTICAL", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE",
    "TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "TORCHELASTIC_ERROR_FILE",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TMPDIR", "USE_LIBUV",
]


def variable_of(option):
    return "PET_" + option.name[2:].upper().replace("-", "_")


def twin_of(name):
    return "--" + name[2:].replace("-", "_")


def given(option, name=None, value=None):
    """The option as words of a command line."""
    value = option.good if value is None else value
    return [name or option.name] if option.good is None else [f"{name or option.name}={value}"]
