"""How peerage is built (B1): one list of sources and one compile for both libraries,
asserts of the core alive inside the extension, nothing exported but what is meant to be,
and an sdist from which a stranger can build.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"


def run(*arguments, **options):
    done = subprocess.run(
        [str(argument) for argument in arguments],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options,
    )  # fmt: skip
    assert done.returncode == 0, f"{arguments}: status {done.returncode}\n{done.stdout[-8000:]}"
    return done.stdout


def exported(library):
    listed = run("nm", "-D", "--defined-only", "-P", library)
    return {line.split()[0].split("@")[0] for line in listed.splitlines()}


@pytest.fixture(scope="session")
def extension():
    import peerage._native

    return Path(peerage._native.__file__)


@pytest.fixture(scope="session")
def shared_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    run("make", "-C", NATIVE, f"-j{os.cpu_count() or 1}", f"BUILD={folder}", "libpeerage.so", "example")
    return folder / "libpeerage.so"


def test_the_extension_exports_its_init_function_only(extension):
    assert exported(extension) == {"PyInit__native"}


def test_the_library_exports_the_public_header_only(shared_library):
    names = exported(shared_library)
    assert names and all(name.startswith("peerage_") for name in names), names


def test_a_failed_assert_of_core_ends_the_process_inside_the_extension(extension):
    """Python's own compiler flags say -DNDEBUG; asserts of the core must survive them.
    Shown by breaking a promise of a core function, found in the extension by its
    distance from the one exported symbol."""
    addresses = {}
    for line in run("nm", "-P", extension).splitlines():
        name, kind, *rest = line.split()
        if kind in "tT":
            addresses[name] = int(rest[0], 16)
    child = f"""
import ctypes
class Span(ctypes.Structure):
    _fields_ = [("at", ctypes.c_char_p), ("bytes", ctypes.c_size_t)]
library = ctypes.CDLL({str(extension)!r})
start = ctypes.cast(library.PyInit__native, ctypes.c_void_p).value - {addresses['PyInit__native']}
kind = ctypes.CFUNCTYPE(None, Span, Span, Span, ctypes.c_char_p, ctypes.c_size_t)
hmac_derive = kind(start + {addresses['hmac_derive']})
few = ctypes.create_string_buffer(32)
hmac_derive(Span(b"s", 1), Span(b"", 0), Span(b"i", 1), few, 32)
print("kept", flush=True)
hmac_derive(Span(b"s", 1), Span(b"", 0), Span(b"i", 1), few, 1 << 20)     # HKDF gives 8160 at most
print("broken", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", child], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert done.stdout == "kept\n", (done.stdout, done.stderr)
    assert done.returncode == -signal.SIGABRT and "Assertion" in done.stderr, done.stderr


def test_c_examples_run_against_the_library(shared_library):
    examples = sorted(path.stem for path in (NATIVE / "examples").glob("*.c"))
    assert examples
    for name in examples:
        run(shared_library.parent / "examples" / name, timeout=60)


def test_what_is_missing_is_named_with_its_debian_package(tmp_path):
    """A compiler that finds no headers stands for a machine that has none of them."""
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    done = subprocess.run(
        ["make", "-C", NATIVE, f"CC={compiler}", f"BUILD={tmp_path}/build", "libpeerage.a"],
        env=os.environ | {"PKG_CONFIG_LIBDIR": str(tmp_path)},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if "missing" in line]
    assert len(lines) == 1
    for package in ("libssl-dev", "libsodium-dev", "libev-dev"):
        assert package in lines[0]


@pytest.mark.timeout(600)
def test_the_sdist_builds(tmp_path):
    """From the unpacked sdist, outside the repository, to a wheel that imports."""
    source = tmp_path / "tree"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", "*.so", ".pytest_cache"
    )
    shutil.copytree(ROOT, source, ignore=ignored)
    run(sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path / "dist", cwd=source)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    for wanted in ("native/Makefile", "native/core/base.h", "native/include/peerage.h", "LICENSE"):
        assert wanted in names
    assert not [name for name in names if name.endswith((".o", ".so", ".pyc"))]

    run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
        "--disable-pip-version-check", "-w", tmp_path / "wheels", archive, cwd=tmp_path,
    )  # fmt: skip
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as unpacked:
        names = set(unpacked.namelist())
        unpacked.extractall(tmp_path / "site")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {"peerage/_native" + suffix, "peerage/py.typed", "peerage/_native.pyi"} <= names
    where = run(
        sys.executable, "-c", "import peerage._native as native; print(native.__file__)",
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert where.strip().startswith(str(tmp_path / "site"))
