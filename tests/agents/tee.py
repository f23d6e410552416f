"""Runs a stdio server and writes each line of its three streams to a file: `tee.py FILE PROGRAM [ARGUMENT...]`."""

import os
import signal
import subprocess
import sys
import threading
import time

START = time.monotonic()


def main():
    log = open(sys.argv[1], "a", encoding="utf-8")
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def note(direction, text):
        log.write(f"{time.monotonic() - START:8.3f} {direction} {text}\n")
        log.flush()

    def pump(direction, source, target):
        for line in source:
            note(direction, line.decode("utf-8", "replace").rstrip("\n"))
            target.write(line)
            target.flush()
        note(direction, "(end of file)")
        if target is child.stdin:
            target.close()

    def forward(number, _frame):
        note("signal", signal.Signals(number).name)
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    note("start", f"{os.getcwd()} {sys.argv[2:]} {sorted(os.environ)}")
    streams = [("->", sys.stdin.buffer, child.stdin), ("<-", child.stdout, sys.stdout.buffer)]
    streams.append(("stderr", child.stderr, sys.stderr.buffer))
    for stream in streams:
        threading.Thread(target=pump, args=stream, daemon=True).start()
    code = child.wait()
    time.sleep(0.2)
    note("exit", code)
    os._exit(code if code >= 0 else 128 - code)


main()
