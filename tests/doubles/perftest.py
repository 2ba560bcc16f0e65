"""Programs that behave as perftest's ends do: one waits at a port, the other comes there.

They print what perftest 4.5 prints (its tables' formats, as they stand in Debian's 4.5+0.17), and
complain as it does where there is no device or no server.
"""

import sys
from pathlib import Path

BANDWIDTH = (
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      1730000          0.00               181.42\t\t   0.346023\n"
)
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
    " 2       10000          1.02           9.13         1.08     \t       1.10        \t0.07"
    "   \t\t1.31    \t\t3.20   \n"
)
LINE = "-" * 87 + "\n"
PROGRAM = """#!{python}
import socket, sys
port, words = int(sys.argv[sys.argv.index("-p") + 1]), sys.argv[1:]
server = words[-1] if not words[-2].startswith("-") else ""
if "broken" in words:
    print("Unable to find the Infiniband/RoCE device", file=sys.stderr)
    sys.exit(1)
if server:
    try:
        socket.create_connection((server, port), 5).close()
    except OSError:
        print("Couldn't connect to " + server + ":" + str(port), file=sys.stderr)
        sys.exit(1)
else:
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.accept()[0].close()
sys.stdout.write({text!r})
"""
START = """#!/bin/sh
# As ssh: a host's name, then one text for its shell.
echo "$1: $2" >> "{log}"
exec sh -c "$2"
"""


def install(folder: Path) -> Path:
    """The programs in a folder, with `start`, which runs everything on this machine; its log."""
    log = folder / "started"
    for name, table in (("ib_write_bw", BANDWIDTH), ("ib_send_lat", LATENCY)):
        text = LINE + "                    RDMA_Write BW Test\n" + LINE + table + LINE
        write(folder / name, PROGRAM.format(python=sys.executable, text=text))
    write(folder / "start", START.format(log=log))
    return log


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
