#!/usr/bin/env python3
"""Connects its network namespace to that of another process by two interfaces, and delays and loses packets between them.

Usage: relay.py PID DELAY_S LOSS

The near address is 192.0.2.1, the far one 192.0.2.2. `netem` of the kernel would do the same, where it is built in. This works
with any kernel that has /dev/net/tun: the packets are real, so TCP sends lost ones again. Prints `ready`.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 1, 0x1000
# Packets in flight in one direction, above which the next one is dropped, as by a router.
MAX_QUEUE = 1000


def tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


def run(*argv):
    subprocess.run([str(word) for word in argv], check=True)


def forward(ends, delay, loss):
    """Forwards packets until a read fails."""
    waiting, count, in_flight = [], 0, {fd: 0 for fd in ends}
    random.seed(7)
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, to, packet = heapq.heappop(waiting)
            in_flight[to] -= 1
            try:
                os.write(to, packet)
            except (BlockingIOError, OSError):
                pass
        timeout = max(0, waiting[0][0] - now) if waiting else None
        for fd in select.select(ends, [], [], timeout)[0]:
            to = ends[1] if fd == ends[0] else ends[0]
            packet = os.read(fd, 65536)
            if random.random() < loss or in_flight[to] >= MAX_QUEUE:
                continue
            count += 1
            in_flight[to] += 1
            heapq.heappush(waiting, (time.monotonic() + delay, count, to, packet))


def main():
    pid, delay, loss = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    ends = [tun("near"), tun("far")]
    run("ip", "link", "set", "far", "netns", pid)
    for command in ([], ["nsenter", "-t", pid, "-n"]):
        run(*command, "ip", "link", "set", "lo", "up")
    run("ip", "addr", "add", "192.0.2.1", "peer", "192.0.2.2", "dev", "near")
    run("ip", "link", "set", "near", "up")
    run("nsenter", "-t", pid, "-n", "ip", "addr", "add", "192.0.2.2", "peer", "192.0.2.1", "dev", "far")
    run("nsenter", "-t", pid, "-n", "ip", "link", "set", "far", "up")
    print("ready", flush=True)
    forward(ends, delay, loss)


if __name__ == "__main__":
    main()
