"""What somebody sees who can read the wire: with PEER_ENCRYPTION no page and no key, without
it both. The capture is real, of the loopback interface, of this cluster's ports alone."""

import socket
import struct
import threading

import pytest

MARKER = "marked-page-that-nobody-else-may-read"


class Capture:
    """Everything that goes over loopback to or from a range of ports, while it runs."""

    def __init__(self, first, last):
        self.ports = range(first, last + 1)
        self.bytes = bytearray()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.1)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            try:
                packet = self.socket.recv(1 << 17)
            except TimeoutError:
                continue
            header = 14 + (packet[14] & 15) * 4
            if packet[12:14] == b"\x08\x00" and packet[23] in (6, 17):
                source, to = struct.unpack_from("!HH", packet, header)
                if source in self.ports or to in self.ports:
                    self.bytes += packet[header:]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.over.set()
        self.thread.join()
        self.socket.close()


@pytest.mark.parametrize("encryption", ["false", "true"])
def test_a_capture_shows_pages_and_keys_only_without_encryption(fleet, base_port, encryption):
    try:
        capture = Capture(base_port, base_port + 15)
    except PermissionError:
        pytest.skip("capturing loopback needs CAP_NET_RAW")
    with capture:
        workers = fleet(2, PEER_ENCRYPTION=encryption, PEER_UNIX_SOCKETS="false")
        for i in range(8):      # some are the one's, some the other's, all cross the wire
            for one in workers:
                assert MARKER in one("lookup", "value", f"{MARKER}-{i}", 2000)["value"]
        assert sum(one("stats")["frames_out"] for one in workers) > 8
    assert len(capture.bytes) > 8 * 2000, "the pages did cross the wire"
    assert (MARKER.encode() in capture.bytes) is (encryption == "false")
