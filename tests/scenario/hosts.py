"""Hosts for tests: network, mount, name and process namespaces, joined by bridges in a namespace of their own.

Nothing here has a name that the machine could see, so tests run in parallel; and everything hangs on processes that
end with the test, whatever ends it: when the first process of a host ends, the kernel ends all others of that host and
takes its interfaces away. Needs root and CAP_NET_ADMIN; without them Network() skips the test and says why.

Host number n of a network has the addresses 10.9.s.n and fd09:s::n in segment s, on the interface eth<s>. The files of
a host are the machine's own, but for /etc/hosts, /etc/resolv.conf, /etc/nsswitch.conf and /proc.
"""
import contextlib
import os
import signal
import subprocess
import unittest

from harness import children, until

LISTEN_AND_LOG = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
print(flush=True)
while True:
    print(server.recv(4096).hex(), flush=True)
"""

# The first process of a host: sets up what differs from the machine, says so, and stays until its input ends.
# It reaps the orphans of the host by ignoring SIGCHLD.
FIRST_PROCESS = """
trap '' CHLD
echo "$1" >/proc/sys/kernel/hostname
for file in hosts resolv.conf nsswitch.conf; do
  [ ! -e "/etc/$file" ] || mount --bind "$2/$file" "/etc/$file"
done
echo
exec cat
"""


class NoNamespaces(Exception):
    """The machine does not let us make a host."""


class _Space:
    """A set of namespaces with its first process, which is `pid` as the machine counts."""

    def __init__(self, kinds, script, *arguments):
        command = ["unshare", *kinds, "--pid", "--fork", "--kill-child", "--mount-proc",
                   "sh", "-ec", script, "sh", *arguments]
        try:
            self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise NoNamespaces(str(error)) from error
        if not self._holder.stdout.readline():
            raise NoNamespaces(self._holder.communicate()[1].decode().strip())
        (self.pid,) = children(self._holder.pid)

    def end(self):
        """Ends every process in here, at once and unasked, as a machine that loses its power."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._holder.wait()
        for stream in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def ip(self, *commands):
        """Runs commands of ip(8) in here."""
        done = subprocess.run(["nsenter", "--target", str(self.pid), "--net", "ip", "-batch", "-"],
                              input="\n".join(commands) + "\n", capture_output=True, text=True)
        if done.returncode != 0:
            raise NoNamespaces(f"ip: {done.stderr.strip()} (of: {'; '.join(commands)})")


class Host:
    """One machine of a Network; see there."""

    def __init__(self, name, number, segments, folder):
        self.name, self.number, self.segments, self.folder = name, number, segments, folder
        self.space = _Space(("--net", "--mount", "--uts"), FIRST_PROCESS, name, folder)

    def v4(self, segment=0):
        return f"10.9.{segment}.{self.number}"

    def v6(self, segment=0):
        return f"fd09:{segment}::{self.number}"

    def port_name(self, segment):
        """Of the switch's end of the cable."""
        return f"port{self.number}s{segment}"

    def enter(self, folder):
        """The command line before which a command runs on this host, in that folder. It is the child of a process that
        waits outside, and ends with the same code or signal."""
        return ("nsenter", "--target", str(self.space.pid), "--net", "--mount", "--uts", "--pid", "--",
                "sh", "-c", 'cd "$0" && exec setsid "$@"', folder)


class Network:
    """Hosts with these names; each has an interface in segment 0, or in those that `segments` names for it.

    folder      where the hosts' files of name resolution go
    families    the addresses that interfaces get: "v4", "v6"
    nameserver  the address of a server for names, which the resolver asks twice and for 30 s each; without one names
                are looked up in /etc/hosts only
    A host finds its own name as 127.0.1.1, as Debian's installer writes it.
    """

    def __init__(self, folder, names, families=("v4",), segments=None, nameserver=None):
        self.hosts = {}
        self._families = families
        self._switch = None
        try:
            self._switch = _Space(("--net", "--mount"), "echo; exec cat")
            for number, name in enumerate(names, start=1):
                files = self._write_files(os.path.join(folder, f"etc.{name}"), name, nameserver)
                self.hosts[name] = Host(name, number, (segments or {}).get(name, (0,)), files)
            self._wire()
        except NoNamespaces as error:
            self.close()
            raise unittest.SkipTest(f"hosts need root, CAP_NET_ADMIN and iproute2: {error}") from error
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name):
        return self.hosts[name]

    def close(self):
        for space in [host.space for host in self.hosts.values()] + [self._switch]:
            if space:
                space.end()

    @staticmethod
    def _write_files(folder, name, nameserver):
        os.mkdir(folder)
        for file, text in (("hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost\n"),
                           ("resolv.conf", f"nameserver {nameserver}\noptions timeout:30\n" if nameserver else ""),
                           ("nsswitch.conf", "passwd: files\ngroup: files\n"
                                             f"hosts: files{' dns' if nameserver else ''}\n")):
            with open(os.path.join(folder, file), "w") as f:
                f.write(text)
        return folder

    def _bridge(self, name):
        self._switch.ip(f"link add {name} type bridge mcast_snooping 0", f"link set {name} up")

    def _wire(self):
        for segment in {segment for host in self.hosts.values() for segment in host.segments}:
            self._bridge(f"whole{segment}")
            self._bridge(f"apart{segment}")
        for host in self.hosts.values():
            commands = ["link set lo up"]
            for segment in host.segments:
                port, interface = host.port_name(segment), f"eth{segment}"
                self._switch.ip(f"link add {port} type veth peer name {interface} netns {host.space.pid}",
                                f"link set {port} master whole{segment} up")
                if "v4" in self._families:
                    commands.append(f"address add {host.v4(segment)}/24 dev {interface}")
                if "v6" in self._families:
                    commands.append(f"address add {host.v6(segment)}/64 dev {interface} nodad")
                commands.append(f"link set {interface} up")
            host.space.ip(*commands)

    def _each_port(self, hosts, change):
        for host in hosts:
            self._switch.ip(*(f"link set {host.port_name(segment)} {change.format(segment=segment)}"
                              for segment in host.segments))

    def unplug(self, host):
        """Pulls the host's cables; its interfaces lose their carrier."""
        self._each_port([host], "down")

    def plug(self, host):
        self._each_port([host], "up")

    def cut(self, *hosts):
        """Cuts between these hosts and the others. All keep their carrier, and these go on reaching each other."""
        self._each_port(hosts, "master apart{segment}")

    def heal(self):
        self._each_port(self.hosts.values(), "master whole{segment}")

    def power_off(self, host):
        """The host is gone, without a last word to anybody: cable first, so that no connection is closed."""
        self.unplug(host)
        host.space.end()


class SilentNameServer:
    """Takes every question that reaches its host and answers none; `questions` counts them."""

    def __init__(self, host, address, log):
        self._log = log
        with open(log, "wb") as out:
            self._process = subprocess.Popen([*host.enter("/"), "python3", "-c", LISTEN_AND_LOG, address], stdout=out,
                                             stdin=subprocess.DEVNULL)
        until(lambda: os.path.getsize(log) > 0 or self._process.poll() is not None)
        if self._process.poll() is not None:
            raise RuntimeError("the name server did not start")

    def questions(self):
        with open(self._log) as f:
            return len(f.read().split())

    def close(self):
        """After its host's end."""
        self._process.wait()
