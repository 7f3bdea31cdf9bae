# SPDX-License-Identifier: Apache-2.0
"""Guests with real verbs: one machine, or two that are joined by a network, emulated in software with soft-RoCE devices.

    with guest.Guests(2) as guests:
        result = guests.run(["ibv_devinfo", "-d", "rxe0"])

A guest sees the machine's own root, so all that is installed and built here is there under the same path; what it writes
stays in its memory and is lost with it.  A file that is changed here while a guest runs may be seen there as it was.
/share is one folder for the machine (guests.share) and all guests.  Commands run as root, with the caller's environment
and folder unless others are given.  A speed means nothing but next to another one of the same guest.

One guest:   v0 and v1, a veth pair, are 10.77.0.1 and .2, fd77::1 and ::2; rxe0 is on v0 and rxe1 on v1.
Two guests:  guest0 and guest1 have eth0, 10.77.1.1 and .2, fd77:1::1 and ::2, and rxe0 on it.  HERE/rsh reaches the other.
Netem, links, addresses and devices are the command's to change.  Nothing of it touches the machine."""
import collections
import contextlib
import functools
import inspect
import itertools
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import agent
import harness
import image
from image import Missing

HERE = os.path.dirname(os.path.realpath(__file__))
RSH = f"{HERE}/rsh"
BOOT_SECONDS = 120  # ten times what is needed where nothing else runs
CPU = "max,la57=off,smap=off,smep=off,umip=off,pku=off"  # without what only costs time where nobody attacks
LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Gid = collections.namedtuple("Gid", "index gid type interface")

# The second stage, after init, process number 1 of the guest for as long as it lives.  The network is made while the
# agent, an interpreter that has much to read, comes up.
BOOT = """\
export PATH={path} HOME=/root USER=root LOGNAME=root
cd /
ulimit -Hn 524288
setup()
{{
    echo {name} >/proc/sys/kernel/hostname
    printf '127.0.0.1 localhost\\n::1 localhost\\n{hosts}' >/etc/hosts
    # What one end of a pair sends at once, the other one keeps until there is time for it.
    echo 100000 >/proc/sys/net/core/netdev_max_backlog
    # An address may be used at once; and what one end of a pair sends to the other's address comes in though it is ours.
    for how in all default; do
        echo 0 >/proc/sys/net/ipv6/conf/$how/accept_dad
        echo 1 >/proc/sys/net/ipv4/conf/$how/accept_local
        echo 0 >/proc/sys/net/ipv4/conf/$how/rp_filter
    done
{network}
}}
>/run/setup.log
{{ setup >/run/setup.log 2>&1; >/run/setup.done; }} & # whatever it says is trouble
{python} -I -S {agent} /dev/vport*p1 /run/setup.log /run/setup.done
echo o >/proc/sysrq-trigger
sleep 60
"""
ALONE = """\
    ip -batch - <<END
link set lo up
link add v0 type veth peer name v1
addr add 10.77.0.1/24 dev v0
addr add 10.77.0.2/24 dev v1
addr add fd77::1/64 dev v0 nodad
addr add fd77::2/64 dev v1 nodad
link set v0 up
link set v1 up
END
    rdma link add rxe0 type rxe netdev v0
    rdma link add rxe1 type rxe netdev v1"""
JOINED = """\
    ip -batch - <<END
link set lo up
addr add 10.77.1.{own}/24 dev eth0
addr add fd77:1::{own}/64 dev eth0 nodad
link set eth0 up
END
    rdma link add rxe0 type rxe netdev eth0"""


class Lost(Exception):
    """A guest did not come up, or is gone."""


class Command:
    """A process in a guest."""

    def __init__(self, guest, number, out, err):
        self.guest, self.number, self.sinks = guest, number, {agent.OUT: out, agent.ERR: err}
        self.code, self.over = None, threading.Event()

    def feed(self, data):
        """Input of no bytes is the end of it."""
        self.guest.channel.send(self.number, agent.INPUT, data)

    def kill(self, number=signal.SIGKILL):
        """A signal to it and to all it has begun in its session."""
        self.guest.channel.send(self.number, agent.SIGNAL, str(int(number)).encode())

    def wait(self, seconds=None):
        """The exit code, as a shell has it; None when it still runs."""
        if not self.over.wait(seconds):
            return None
        if self.code is None:
            raise Lost(f"{self.guest.name} ended before its command did\n{self.guest.story()}")
        return self.code


class Guest:
    """One emulated machine.  Who makes it calls attend() before anything else, and close() at the end."""

    def __init__(self, number, count, folder, options, link=None):
        self.name, self.folder, self.number = f"guest{number}", f"{folder}/{number}", number
        self.address = f"10.77.{count - 1}.{number + 1}"
        self.gids, self.trouble, self.commands, self.numbers = {}, "", {}, itertools.count(1)
        self.channel = self.connection = None
        os.mkdir(self.folder)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(f"{self.folder}/agent")
        self.listener.listen(1)
        self.ready = threading.Event()
        self.argv = self.command_line(folder, options, link)
        self.script = self.second_stage(count)
        self.process = None

    def command_line(self, folder, options, link):
        kernel, _ = options.image
        shared = lambda tag, path, more: ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,{more}"]
        network = [] if link is None else [
            "-netdev", f"socket,id=link,fd={link}", "-device",
            f"virtio-net-pci,netdev=link,romfile=,mac=52:54:00:77:01:0{self.number + 1}"]
        # It ends with the thread that has begun it, whatever becomes of that.
        return [image.program("setpriv", "util-linux"), "--pdeathsig", "KILL",
                image.program("qemu-system-x86_64", "qemu-system-x86"), "-nodefaults", "-no-user-config", "-no-reboot",
                "-display", "none", "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", str(options.cpus),
                "-m", str(options.memory), "-kernel", kernel, "-initrd", f"{self.folder}/initrd",
                "-append", "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests",
                "-serial", f"file:{self.folder}/console",
                *shared("machine", "/", "readonly=on,multidevs=remap"),
                *shared("share", f"{folder}/share", "multidevs=remap"),
                "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={self.folder}/agent",
                "-device", "virtserialport,chardev=agent,nr=1", *network]

    def second_stage(self, count):
        names = [f"10.77.{count - 1}.{i + 1} guest{i}\\n" for i in range(count)]
        return BOOT.format(path=LOGIN_PATH, name=self.name, hosts="".join(names), python=shlex.quote(sys.executable),
                           network=ALONE if count == 1 else JOINED.format(own=self.number + 1),
                           agent=shlex.quote(f"{HERE}/agent.py"))

    def start_machine(self, options, inherited):
        with open(options.image[1], "rb") as base, open(f"{self.folder}/initrd", "wb") as file:
            file.write(base.read() + image.archive({"boot.sh": (0o100644, self.script.encode())}))
        with open(f"{self.folder}/errors", "wb") as errors:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                            pass_fds=inherited)

    def attend(self, end):
        """Wait until it takes commands."""
        self.listener.settimeout(0.1)
        while not self.connection and time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(TimeoutError):
                self.connection = self.listener.accept()[0]
        if self.connection:
            self.connection.settimeout(None)
            self.channel = agent.over_socket(self.connection)
            threading.Thread(target=self.listen, daemon=True).start()
            self.ready.wait(max(0, end - time.monotonic()))
        if not self.gids:
            how = "did not come up in time" if self.process.poll() is None else "ended while it came up"
            raise Lost(f"{self.name} {how}\n{self.story()}")

    def listen(self):
        """Of a thread: give what comes to whom it is for, until the guest ends."""
        with contextlib.suppress(OSError):
            for number, kind, data in self.channel.frames():
                command = self.commands.get(number)
                if kind == agent.READY:
                    self.take_report(data.decode())
                elif command and kind == agent.EXIT:
                    command.code = int(data)
                    del self.commands[number]
                    command.over.set()
                elif command:
                    command.sinks[kind](data)
        self.ready.set()
        for command in list(self.commands.values()):
            command.over.set()

    def take_report(self, text):
        rows = [line.split("\t") for line in text.splitlines()]
        if not rows or any(len(row) != 5 for row in rows):
            self.trouble = text
        else:
            for device, index, *rest in rows:
                self.gids.setdefault(device, []).append(Gid(int(index), *rest))
        self.ready.set()

    def start(self, argv, out, err, env=None, cwd="/"):
        """out, err: functions that take bytes, called by another thread."""
        if not self.process or self.process.poll() is not None:
            raise Lost(f"{self.name} is gone\n{self.story()}")
        command = Command(self, next(self.numbers), out, err)
        self.commands[command.number] = command
        self.channel.send(command.number, agent.START, agent.packed(argv, cwd, env))
        return command

    def gid_index(self, device="rxe0"):
        """Of the IPv4 address."""
        return next(g.index for g in self.gids[device] if ":ffff:" in g.gid)

    def story(self):
        """What the kernel and the emulator had to say."""
        said = [self.trouble]
        for name in ("errors", "console"):
            with contextlib.suppress(OSError), open(f"{self.folder}/{name}", encoding="utf8", errors="replace") as file:
                said.append(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\x1bc|\r", "", file.read())[-3000:])
        return "\n".join(text.strip() for text in said if text.strip())

    def close(self):
        """Nothing in it is worth an orderly end."""
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.connection:
            self.connection.close()
        self.listener.close()


class Options:
    def __init__(self, cpus=2, memory=2048):
        """memory: MiB of each guest, taken when it is used."""
        if os.uname().machine != "x86_64":
            raise Missing(f"a guest needs the machine's own programs, and there is no kernel for {os.uname().machine}")
        for name, package in (("qemu-system-x86_64", "qemu-system-x86"), ("rdma", "iproute2")):
            image.program(name, package)
        self.cpus, self.memory, self.image = cpus, memory, image.prepare()


class Guests:
    """One guest or two; a context, closed at its end."""

    def __init__(self, count=1, seconds=BOOT_SECONDS, boot=True, **options):
        harness.check(count in (1, 2), "there can be 1 or 2 guests, not", count)
        self.options, self.members, begun = Options(**options), [], time.monotonic()
        self.folder = tempfile.mkdtemp(prefix="softroce-")
        self.share = f"{self.folder}/share"
        os.mkdir(self.share)
        os.chmod(self.share, 0o1777)  # whoever a command runs as
        try:
            self._make(count, begun + seconds, boot)
        except BaseException:
            self.close()
            raise
        self.boot_seconds = time.monotonic() - begun

    def _make(self, count, end, boot):
        ends = socket.socketpair() if count == 2 else ()
        try:
            for i in range(count):
                link = ends[i].fileno() if ends else None
                self.members.append(Guest(i, count, self.folder, self.options, link))
                if boot:
                    self.members[i].start_machine(self.options, () if link is None else (link,))
        finally:
            for each in ends:
                each.close()
        for member in self.members if boot else ():
            member.attend(end)

    def __getitem__(self, number):
        return self.members[number]

    @staticmethod
    def environment(env=None):
        """A command's: ours, with the interpreter that runs here found first, not what stands for it."""
        env = dict(os.environ if env is None else env)
        env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), env.get("PATH", LOGIN_PATH), "/usr/sbin", "/sbin"])
        return env

    def start(self, argv, out, err, guest=0, env=None, cwd=None):
        return self.members[guest].start(argv, out, err, self.environment(env), cwd or os.getcwd())

    def run(self, argv, timeout=60, guest=0, env=None, cwd="/", stdin=""):
        """As harness.run(), in a guest: running longer than timeout is a failure."""
        begun, out, err = time.monotonic(), bytearray(), bytearray()
        command = self.start(argv, out.extend, err.extend, guest, harness.clean_env() if env is None else env, cwd)
        command.feed(stdin.encode())
        if stdin:
            command.feed(b"")
        code = command.wait(timeout)
        texts = [bytes(data).decode("utf8", "replace") for data in (out, err)]
        if code is None:
            command.kill()
            command.wait(5)
            raise AssertionError(f"{' '.join(argv)} still ran in {self.members[guest].name} after {timeout} s\n"
                                 f"{texts[0][-3000:]}\n{texts[1][-3000:]}")
        return harness.Result(code, *texts, time.monotonic() - begun)

    def shell(self, script, **how):
        return self.run(["sh", "-c", script], **how)

    def must(self, script, **how):
        """The output of a shell's command that has to succeed."""
        result = self.shell(script, **how)
        harness.check(result.code == 0, script, result)
        return result.out

    def close(self):
        for member in self.members:
            member.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- what several suites measure ---------------------------------------------------------------------------------------

PERFTEST_PORTS = itertools.count(18600)


def pair(guests, server, client, places, port, seconds):
    """Run `server` and, when something listens on the port, `client`; the client's output.  places: their guests."""
    said = bytearray()
    serving = guests.start(["sh", "-c", server], said.extend, said.extend, places[0], harness.clean_env(), "/")
    try:
        guests.must(f"for i in $(seq 100); do ss -Htln | grep -q ':{port} ' && exit; sleep 0.1; done; exit 1",
                    guest=places[0])
        found = guests.run(["sh", "-c", client], seconds, places[1])
        code = serving.wait(20)
    finally:
        if serving.code is None:
            serving.kill()
    harness.check(found.code == 0 and code == 0, client, found, "the server's exit code", code,
                  said.decode(errors="replace"))
    return found.out


def installed(command, package):
    """Its path; without it the case is skipped."""
    try:
        return image.program(command, package)
    except Missing as reason:
        return harness.skip(reason)


def write_bw(guests, size=8 << 20, count=10, places=(0, 0), device="rxe0", both_ways=True, seconds=120):
    """Bytes a second by ib_write_bw, the sum of both directions if both_ways: what a transport is measured against."""
    installed("ib_write_bw", "perftest")
    target, port = guests[places[0]], next(PERFTEST_PORTS)
    words = lambda place: (f"ib_write_bw -F -d {device} -x {guests[place].gid_index(device)} -s {size} -n {count} -p {port}"
                           + (" -b" if both_ways else ""))
    out = pair(guests, words(places[0]), f"{words(places[1])} {target.address}", places, port, seconds)
    row = re.search(rf"^\s*{size}\s+{count}\s+([\d.]+)\s+([\d.]+)\s+[\d.]+", out, re.M)
    harness.check(row, "no figure in", out)
    return float(row[2]) * (1 << 20)


# ---- a suite whose cases share guests ------------------------------------------------------------------------------------

BOOTED = {}


def needs(count):
    """Mark a case that takes Guests(count), which other cases have used before it and will use after it."""
    def mark(case):
        @functools.wraps(case)
        def with_guests():
            if isinstance(BOOTED[count], Missing):
                harness.skip(BOOTED[count])
            if isinstance(BOOTED[count], Exception):
                raise BOOTED[count]
            case(BOOTED[count])
        with_guests.guests = count
        return with_guests
    return mark


def boot(count):
    try:
        BOOTED[count] = Guests(count)
    except (Missing, Lost) as problem:
        BOOTED[count] = problem


def main(names):
    """As harness.main(); boots are what costs, so that each number of guests boots once, before the cases."""
    picked = os.environ.get("RING_TEST_CASES", "")
    wanted = {case.guests for name, case in names.items()
              if name.startswith("case_") and picked in name and hasattr(case, "guests")}
    try:
        for count in sorted(wanted):
            boot(count)
        harness.main(names)
    finally:
        for guests in BOOTED.values():
            if isinstance(guests, Guests):
                guests.close()
