# SPDX-License-Identifier: Apache-2.0
"""What runs commands in a guest, for the machine (by a virtual serial port) and for the other guest (by TCP), and how they
talk to it.  Called in the guest: agent.py PORT_DEVICE SETUP_LOG SETUP_DONE.  What it imports costs time at every boot.

A channel carries frames both ways: the number of a command, a kind, a length, and so many bytes.  Commands begun through a
channel end with it: their input is at its end, and 10 s later they are killed."""
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HEAD = struct.Struct("<IcI")
START, INPUT, SIGNAL = b"S", b"I", b"K"             # to the agent; input of no bytes is the end of it
READY, OUT, ERR, EXIT = b"R", b"O", b"E", b"X"      # from the agent
KINDS = {OUT: 1, ERR: 2}
TCP_PORT = 7077
PIECE = 1 << 16


class Channel:
    """read(n) returns n bytes, or fewer at the end; write(bytes) writes some and says how many."""

    def __init__(self, read, write):
        self.read, self.write, self.lock = read, write, threading.Lock()

    def send(self, number, kind, data=b""):
        rest = memoryview(HEAD.pack(number, kind, len(data)) + data)
        with self.lock:
            while rest:
                rest = rest[self.write(rest):]

    def frames(self):
        while len(head := self.read(HEAD.size)) == HEAD.size:
            number, kind, length = HEAD.unpack(head)
            data = self.read(length) if length else b""
            if len(data) < length:
                return
            yield number, kind, data


def over_socket(connection):
    return Channel(connection.makefile("rb").read, connection.send)


class Command:
    """A process and the threads that carry what it reads and writes."""

    def __init__(self, channel, number, argv, cwd, env):
        self.channel, self.number, self.moved = channel, number, 0
        self.input = queue.SimpleQueue()
        self.process = subprocess.Popen(argv, env=env, cwd=cwd, bufsize=0, start_new_session=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pumps = [threading.Thread(target=self.pump, args=how, daemon=True)
                      for how in ((self.process.stdout, OUT), (self.process.stderr, ERR))]
        for thread in (*self.pumps, threading.Thread(target=self.feed, daemon=True),
                       threading.Thread(target=self.finish, daemon=True)):
            thread.start()

    def pump(self, pipe, kind):
        while data := os.read(pipe.fileno(), PIECE):
            try:
                self.channel.send(self.number, kind, data)
            except OSError:
                break  # nobody listens: closing the pipe tells the command
            self.moved += 1
        pipe.close()

    def feed(self):
        try:
            while data := self.input.get():
                while data:
                    data = data[os.write(self.process.stdin.fileno(), data):]
        except OSError:
            pass  # it does not want to read
        self.process.stdin.close()

    def finish(self):
        code = self.process.wait()
        for pump in self.pumps:  # what it left in the background may hold them open for ever
            moved = -1
            while pump.is_alive() and moved != self.moved:
                moved = self.moved
                pump.join(1)
        self.input.put(b"")
        try:
            self.channel.send(self.number, EXIT, str(code if code >= 0 else 128 - code).encode())
        except OSError:
            pass

    def kill(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def abandon(self):
        self.input.put(b"")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill(signal.SIGKILL)


def packed(argv, cwd="", env=None):
    """A command as bytes; no folder and no environment: the agent's own."""
    words = [cwd, str(len(argv)), *argv, *([] if env is None else [f"{k}={v}" for k, v in env.items()])]
    return b"\0".join(os.fsencode(word) for word in words)


def unpacked(data):
    cwd, count, *words = data.split(b"\0")
    argv, env = words[:int(count)], words[int(count):]
    return argv, cwd or None, dict(pair.split(b"=", 1) for pair in env) or None


def begin(channel, number, argv, cwd, env):
    try:
        return Command(channel, number, argv, cwd, env)
    except OSError as error:
        name = os.fsencode(error.filename or argv[0])
        channel.send(number, ERR, b"softroce: %s: %s\n" % (name, error.strerror.encode()))
        channel.send(number, EXIT, b"126" if isinstance(error, PermissionError) else b"127")
        return None


def serve(channel):
    """Until the channel ends."""
    commands = {}
    for number, kind, data in channel.frames():
        if kind == START:
            commands[number] = begin(channel, number, *unpacked(data))
        elif commands.get(number) and kind == INPUT:
            commands[number].input.put(data)
        elif commands.get(number) and kind == SIGNAL:
            commands[number].kill(int(data))
    for command in filter(None, commands.values()):
        command.abandon()


def serve_connection(connection):
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            serve(over_socket(connection))
        except OSError:
            pass


def serve_neighbour():
    """Commands of the other guest."""
    with socket.create_server(("", TCP_PORT), backlog=64) as server:
        while True:
            threading.Thread(target=serve_connection, args=(server.accept()[0],), daemon=True).start()


def read_text(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # how sysfs says that an entry is empty
        return ""


def gids():
    """Lines of device, index, GID, type and interface, of the first entries of each table."""
    lines, devices = [], "/sys/class/infiniband"
    for device in sorted(os.listdir(devices)):
        port = f"{devices}/{device}/ports/1"
        for i in range(8):
            gid = read_text(f"{port}/gids/{i}")
            if gid.strip("0:"):
                how = read_text(f"{port}/gid_attrs/types/{i}"), read_text(f"{port}/gid_attrs/ndevs/{i}")
                lines.append("\t".join((device, str(i), gid, *how)))
    return lines


def complete(lines):
    return lines and sum(":ffff:" in line for line in lines) == len({line.split("\t")[0] for line in lines})


def report(log, done):
    """What READY says: GIDs, when the network is set up and the kernel has filled its tables a moment later; or trouble."""
    while not os.path.exists(done):
        time.sleep(0.02)
    for _ in range(100):
        lines = gids()
        if complete(lines):
            break
        time.sleep(0.05)
    with open(log, encoding="utf8", errors="replace") as file:
        trouble = file.read()
    if not trouble and not complete(lines):
        trouble = "the devices have no GIDs of their addresses"
    return trouble or "\n".join(lines)


def main():
    device, log, done = sys.argv[1:]
    threading.Thread(target=serve_neighbour, daemon=True).start()
    with open(device, "r+b", buffering=0) as port:
        channel = Channel(os.fdopen(os.dup(port.fileno()), "rb").read, port.write)
        channel.send(0, READY, report(log, done).encode())
        serve(channel)


if __name__ == "__main__":
    main()
