"""Tells cpprun how far this worker is. Standard library only; workers that cpprun starts find it by themselves.

    import cpprun_progress as progress

    progress.phase("training")
    for n, batch in enumerate(batches):
        with progress.section("forward"):
            ...
        progress.step(n)

What a worker says lies in a page of memory that it shares with its agent, which looks at it to tell a hang from work,
and quotes it when the worker has failed, however it ended. A call costs about a microsecond. Where the program was
not started by cpprun nothing happens. Importing this module also lets the agent ask for the stacks of all Python
threads, by a signal that nothing else uses.

No call ends the script for what it is given: a number is made a whole one, anything is made a text; only an unknown
phase raises ValueError. Calls may come from any thread; phase and section are the process's, meant for the thread that
trains. Of a worker's processes the first that imports this owns the page for as long as it lives; children that it
forks are silent.
"""
import faulthandler
import mmap
import os
import signal
import stat
import struct
import threading
from time import monotonic_ns

__all__ = ["PHASES", "collective", "heartbeat", "message", "phase", "section", "step"]

PHASES = ("starting", "training", "evaluating", "checkpointing", "compiling", "waiting", "finishing")

# The layout is that of cpprun_progress.h. Numbers are of 8 bytes (the first group) or 4; a store of one is whole.
_SIZE = 4096
_MAGIC, _HEARTBEATS, _LAST_HEARTBEAT, _STEP, _COLLECTIVE, _LAST_PROGRESS, _PHASE_SINCE = 0, 3, 4, 5, 6, 7, 8
_SECTION_COUNT, _MESSAGE_COUNT = 9, 10
_VERSION, _PID, _PHASE, _STACKS_SIGNAL = 2, 3, 4, 5
_MAGIC_VALUE, _VERSION_VALUE = 0x67706E7572707063, 1
_SECTION, _SECTION_AT = struct.Struct("=q64s"), (128, 200)
_MESSAGE, _MESSAGE_AT = struct.Struct("=q504s"), (512, 1024)

_LARGEST = 1 << 63

_PHASE_NUMBERS = {name: number for number, name in enumerate(PHASES)}


def _show(page):
    """Makes `page` the one that is written."""
    global _page, _words, _halves, _lock, _fence
    _page = page
    _words = memoryview(page).cast("q")
    _halves = memoryview(page).cast("I")
    _lock = threading.Lock()  # two threads must not write one text
    _fence = threading.Lock()
    _fence.acquire()


def _write(entry, places, count, since, text):
    """Text number n goes to place n % 2, and then n to the counter: what that names is whole at any time."""
    if not _lock.acquire(True, 0.01):  # a signal handler may have interrupted the one that holds it
        return
    try:
        number = _words[count] + 1
        entry.pack_into(_page, places[number & 1], since, text)
        _fence.release()  # by which the text is there before its number, on any processor
        _fence.acquire()
        _words[count] = number
    finally:
        _lock.release()


def _whole(number):
    """A training script does not end because it counts in floats or tensors: what counts is that it changes."""
    if type(number) is int and -_LARGEST <= number < _LARGEST:
        return number
    try:
        return int(number) % _LARGEST
    except (TypeError, ValueError, OverflowError):  # no number, not a number, infinite
        return hash(str(number)) % _LARGEST


def _bytes(text):
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")


def heartbeat():
    """This process still runs; no progress by itself. May come from a thread of its own."""
    _words[_LAST_HEARTBEAT] = monotonic_ns()
    _words[_HEARTBEATS] += 1


def step(number):
    """Step `number` of the training was done, or begun: what matters is that it changes. From 0."""
    _words[_STEP] = _whole(number)
    _words[_LAST_PROGRESS] = monotonic_ns()


def collective(sequence):
    """The collective of this number, from 0, is about to begin. Ranks that count alike can be compared."""
    _words[_COLLECTIVE] = _whole(sequence)
    _words[_LAST_PROGRESS] = monotonic_ns()


def message(text):
    """A word for people, of which the first 503 bytes count; "": none. No progress by itself."""
    _write(_MESSAGE, _MESSAGE_AT, _MESSAGE_COUNT, monotonic_ns(), _bytes(text)[:503])


def phase(name):
    """What the process is about now, one of PHASES: limits depend on it. `with phase(...)`: until the block's end."""
    number = _PHASE_NUMBERS.get(name)
    if number is None:
        raise ValueError(f"'{name}' is no phase of a worker; they are {', '.join(PHASES)}")
    before = _halves[_PHASE]
    _set_phase(number)
    return _Scope(_set_phase, before)


def _set_phase(number):
    now = monotonic_ns()
    _halves[_PHASE] = number
    _words[_PHASE_SINCE] = now
    _words[_LAST_PROGRESS] = now


def section(name):
    """Enters a section, of whose name the first 63 bytes count, and leaves the one before; "": is in none.

    `with section(...)`: until the block's end, then in the section around it, since when that was entered.
    """
    outer = _SECTION.unpack_from(_page, _SECTION_AT[_words[_SECTION_COUNT] & 1])
    now = monotonic_ns()
    _write(_SECTION, _SECTION_AT, _SECTION_COUNT, now, _bytes(name)[:63])
    _words[_LAST_PROGRESS] = now
    return _Scope(_leave_section, outer)


def _leave_section(outer):
    _write(_SECTION, _SECTION_AT, _SECTION_COUNT, *outer)
    _words[_LAST_PROGRESS] = monotonic_ns()


class _Scope:
    __slots__ = ("_restore", "_before")

    def __init__(self, restore, before):
        self._restore = restore
        self._before = before

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._restore(self._before)


def _lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it is another user's, or no pid at all: not ours to replace
    return True


def _claim():
    """Makes this process the page's writer; false while another one lives that is."""
    writer, own = _halves[_PID], os.getpid()
    if writer == own:
        return True
    if writer and _lives(writer):
        return False
    _halves[_PID], _halves[_VERSION], _halves[_STACKS_SIGNAL], _halves[_PHASE] = own, _VERSION_VALUE, 0, 0
    now = monotonic_ns()
    _words[_STEP], _words[_COLLECTIVE], _words[_PHASE_SINCE] = -1, -1, now
    _write(_SECTION, _SECTION_AT, _SECTION_COUNT, now, b"")
    _write(_MESSAGE, _MESSAGE_AT, _MESSAGE_COUNT, now, b"")
    _words[_MAGIC] = _MAGIC_VALUE
    return True


def _offer_stacks(file):
    """The agent may have the Python stacks of this process written to that file, by a signal without a handler."""
    for number in range(signal.SIGRTMAX - 2, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            stacks = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            faulthandler.register(number, stacks, all_threads=True)
            _halves[_STACKS_SIGNAL] = number
            return


def _be_silent():
    _show(bytearray(_SIZE))


def _open(file):
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size < _SIZE:
            return
        _show(mmap.mmap(fd, _SIZE))
    finally:
        os.close(fd)
    if not _claim():
        return _be_silent()
    os.register_at_fork(after_in_child=_be_silent)
    _offer_stacks(file + ".stacks")


_be_silent()
if os.environ.get("CPPRUN_PROGRESS_PAGE"):
    try:
        _open(os.environ["CPPRUN_PROGRESS_PAGE"])
    except (OSError, ValueError):
        pass  # no worker fails because it cannot tell how far it is
