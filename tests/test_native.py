"""The native tests as pytest items, one per cmocka program and way of building it, so
that one summary covers everything. `make check` in native/ runs the same programs.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parent.parent / "native"
PROGRAMS = sorted(path.stem for path in (NATIVE / "tests").glob("test_*.c"))
# A program whose source uses the shell or the public header has threads.
THREADED = [
    name
    for name in PROGRAMS
    if re.search(r'"(shell/|tests/shell_|peerage\.h)', (NATIVE / "tests" / f"{name}.c").read_text())
]
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


# Older sanitizers do not find room for their shadow memory where a kernel randomizes
# addresses with more bits than they knew of.
UNDER = ["setarch", "-R"] if shutil.which("setarch") else []


def run(program, *arguments, seconds=300):
    done = subprocess.run(
        [*UNDER, str(program), *arguments],
        env=os.environ | SANITIZER_OPTIONS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
    )
    failed = "\n".join(re.findall(r".*: error: .*|\[  FAILED.*", done.stdout))
    assert done.returncode == 0, f"status {done.returncode}\n{failed}\n{done.stdout[-8000:]}"
    return done.stdout


def cases(output):
    return output.count("[       OK ]")


# What waits for timers and sockets takes as long however it is built: once here, and once
# more under TSan.
BUILT = [
    (name, variant)
    for name in PROGRAMS
    for variant in (["asan"] if name in THREADED else ["check", "small", "asan"])
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name, variant", BUILT)
def test_unit(native_build, name, variant):
    assert cases(run(native_build(variant) / "tests" / name)) > 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", THREADED)
def test_no_data_race(native_build, name):
    assert cases(run(native_build("tsan") / "tests" / name)) > 0


@pytest.mark.timeout(900)
@pytest.mark.skipif(not list((NATIVE / "sim").glob("*.c")), reason="no simulator")
def test_simulator_from_a_seed(native_build):
    """A seed is a run: the same seed twice prints the same, and the run's checks pass."""
    program = native_build("check") / "peerage-sim"
    first = run(program, "--seed", "7")
    assert first.strip()
    assert first == run(program, "--seed", "7")


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
@pytest.mark.skipif(not list((NATIVE / "fuzz").glob("fuzz_*.c")), reason="no fuzz targets")
def test_fuzz_corpora():
    """Every fuzz target survives its committed corpus and some seconds of new inputs."""
    made = subprocess.run(
        ["make", "-C", str(NATIVE), f"-j{os.cpu_count() or 1}", "fuzz", "FUZZ_SECONDS=3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert made.returncode == 0, made.stdout[-8000:]
    targets = len(list((NATIVE / "fuzz").glob("fuzz_*.c")))
    assert f"{targets} fuzz targets, none failed" in made.stdout
