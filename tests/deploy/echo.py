"""Answers on ports, or probes them; for the firewall tests, in network namespaces.

    echo.py PORT...                     answer on all of them, UDP and TCP, until killed
    echo.py --probe ADDRESS PORT...     per port and protocol one line: open, or closed
"""

import selectors
import socket
import sys


def serve(ports):
    selector = selectors.DefaultSelector()
    for port in ports:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            sock = socket.socket(socket.AF_INET, kind)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("0.0.0.0", port))
            if kind == socket.SOCK_STREAM:
                sock.listen()
            selector.register(sock, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj.type == socket.SOCK_STREAM:
                connection, _ = key.fileobj.accept()
                connection.sendall(b"hello")
                connection.close()
            else:
                _, source = key.fileobj.recvfrom(100)
                key.fileobj.sendto(b"hello", source)


def is_open(kind, address, port):
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(0.4)
        try:
            sock.connect((address, port))
            if kind == socket.SOCK_DGRAM:
                sock.send(b"hello?")
            return sock.recv(100) == b"hello"
        except OSError:
            return False


def main(arguments):
    if arguments[0] != "--probe":
        serve([int(port) for port in arguments])
    address, *ports = arguments[1:]
    for port in ports:
        for name, kind in (("udp", socket.SOCK_DGRAM), ("tcp", socket.SOCK_STREAM)):
            print(name, port, "open" if is_open(kind, address, int(port)) else "closed")


main(sys.argv[1:])
