"""Hosts of their own for workers: network namespaces on one bridge, some of which are cut off.

A namespace that drops everything is a black hole: its peers' packets are neither answered nor
refused, which no signal to a process can show (a stopped process's kernel still takes
connections).
"""

import contextlib
import os
import secrets
import shutil
import subprocess


def why_not():
    """Why this machine can't have them; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    done = subprocess.run(["unshare", "--net", "ip", "link", "add", "bridge0", "type", "bridge"],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode:
        return f"network namespaces can't be made here: {done.stderr.strip()}"
    done = subprocess.run(["unshare", "--net", "nft", "add table inet t"],
                          capture_output=True, text=True)  # fmt: skip
    return f"nft does not work here: {done.stderr.strip()}" if done.returncode else ""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Hosts:
    """`address(i)`, `command(i, ...)` to run something on host i, `cut(i)`, `mend(i)`."""

    def __init__(self, count):
        name = "pg" + secrets.token_hex(2)
        self.hub = name + "h"
        self.names = [f"{name}{i}" for i in range(count)]
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self):
        run("ip", "netns", "add", self.hub)
        run("ip", "-n", self.hub, "link", "add", "bridge0", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "bridge0", "up")
        for i, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "add", "wire", "type", "veth",
                "peer", "name", f"to{i}", "netns", self.hub)  # fmt: skip
            run("ip", "-n", self.hub, "link", "set", f"to{i}", "master", "bridge0", "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "wire")
            run("ip", "-n", name, "link", "set", "wire", "up")

    @staticmethod
    def address(i):
        return f"10.77.0.{i + 1}"

    def command(self, i, *command):
        return ["ip", "netns", "exec", self.names[i], *command]

    def cut(self, i):
        """From now on host i hears nothing and says nothing."""
        run(*self.command(i, "nft", "add table inet hole; "
                          "add chain inet hole in { type filter hook input priority 0; policy drop; }; "
                          "add chain inet hole out { type filter hook output priority 0; policy drop; }"))

    def mend(self, i):
        run(*self.command(i, "nft", "delete table inet hole"))

    def close(self):
        for name in [*self.names, self.hub]:
            with contextlib.suppress(subprocess.CalledProcessError):
                run("ip", "netns", "del", name)
