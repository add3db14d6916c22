"""The server of the process whose id is given, or a child, whose request is."""

import os
import socket
import sys

from tfx_perf.isolate import serving

if __name__ == "__main__":
    _, parent, *request = sys.argv
    if request:
        sys.exit(serving.carry_out(*request))
    orders = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    os.dup2(sys.stdout.fileno(), sys.stdin.fileno())  # both are the null device
    serving.serve(orders, parent=int(parent))
