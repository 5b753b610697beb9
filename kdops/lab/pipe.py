"""Carry one TCP connection over stdin and stdout: the ProxyCommand of the lab's ssh_config.

Runs on its own (python3 -I -S pipe.py ADDRESS PORT) inside the lab's network namespace. It ends when either
side ends, and 60 s after the peer stopped answering, so that nothing stays behind a cut link.
"""

import os
import select
import signal
import socket
import sys

_CHUNK = 1 << 16
_SILENCE_SECONDS = 60


def main(address: str, port: int) -> int:
    """Copy bytes both ways; exit code 1 with a line on stderr if the connection cannot be made or breaks."""
    try:
        link = socket.create_connection((address, port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_SECONDS // 2)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_SECONDS // 6)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_SECONDS * 1000)
        while True:
            readable, _, _ = select.select([0, link.fileno()], [], [])
            if link.fileno() in readable:
                data = link.recv(_CHUNK)
                if not data:
                    return 0
                while data:
                    data = data[os.write(1, data) :]
            if 0 in readable:
                data = os.read(0, _CHUNK)
                if not data:
                    return 0
                link.sendall(data)
    except BrokenPipeError:
        return 0
    except OSError as error:
        print(f"{address}:{port}: {error.strerror or error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ssh ends it so, and waits for that: also under nohup
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
