"""The tree itself: who may include whom, what the core may call, how files begin.

native/core <- native/shell <- native/binding, and nothing points back up. In the core a
module stands on the grounds and on what the table below says, and only `node` composes
them all. A module that is new here has to be written into the table: that is the moment
to think about what it stands on.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"

# Free to all.
GROUNDS = {"base", "addr", "wire", "limits", "err", "mem", "prng"}
# Module -> the other modules whose headers it may include; only `node` may all. A module
# may be several files: serve.c, serve_load.c; then serve_state.h is its own affair, and
# the others see serve.h.
STANDS_ON = {
    "blob": set(),
    "hmac": set(),
    "siphash": set(),
    "xchacha": set(),
    "frame": set(),
    "message": {"blob"},
    "seal": {"blob", "frame", "hmac", "xchacha"},
    "replay": {"frame"},
    "link": {"frame", "message", "seal"},
    "datagrams": {"frame", "message", "replay", "seal"},
    "rendezvous": set(),
    "view": {"rendezvous"},
    "owners": {"view"},
    "key": set(),
    "deletes": {"siphash"},
    "store": {"blob", "message", "siphash"},
    "tally": {"siphash"},
    "flight": {"blob", "message"},
    "effects": {"blob", "message"},
    "query": {"flight", "message", "view"},
    "tier": {"blob", "flight"},
    "serve": {"deletes", "effects", "flight", "owners", "query", "rendezvous", "store", "view"},
    "swim": set(),
}
STANDS_ON["node"] = set(STANDS_ON)
SYSTEM_HEADERS = re.compile(
    r"(assert|inttypes|limits|math|stdatomic|stdbool|stddef|stdint|stdlib|string)\.h|openssl/\w+\.h|sodium\.h"
)
# What core's objects may leave for others to define: memory and strings of the C library,
# the two crypto libraries, and what the compiler puts in by itself. No sockets, clocks,
# threads, files, randomness or printing.
CALLS = re.compile(
    r"mem(cpy|move|set|cmp|chr|mem)|str(len|cmp|ncmp|chr|nlen)|qsort|bsearch"
    r"|log|log2|log10|ceil|floor|exp|exp2|pow|sqrt"
    r"|__assert_fail|__stack_chk_fail|__(mem|str)\w+_chk|_GLOBAL_OFFSET_TABLE_"
    r"|(EVP|HMAC|CRYPTO|OPENSSL|OSSL|ERR|SHA256)\w*"
    r"|(crypto|sodium)_\w+"
)
# What one module may besides.
OWN_HEADERS = {"addr": {"arpa/inet.h", "stdio.h"}, "rendezvous": {"immintrin.h"}}
OWN_CALLS = {
    "mem": {"malloc", "calloc", "realloc", "free", "explicit_bzero"},
    "addr": {"inet_ntop", "inet_pton", "snprintf", "strtoul"},  # text to numbers and back
    "rendezvous": {"__cpu_model"},                              # has it AVX2?
}


def module_of(stem):
    """serve_load -> serve; None: not in the table."""
    known = [m for m in GROUNDS | set(STANDS_ON) if stem == m or stem.startswith(m + "_")]
    return max(known, key=len, default=None)


def includes(path):
    """[(line number, '"' or '<', name)]"""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            found.append((number, *match.groups()))
    return found


def broken_core_includes(native):
    """Lines of native/core that include what the picture does not allow."""
    core = native / "core"
    for path in sorted(core.glob("*.[ch]")):
        module = module_of(path.stem)
        if module is None:
            yield f"{path.name}: the module is not in the table of tests/test_house.py"
            continue
        allowed = GROUNDS | STANDS_ON.get(module, set())
        for number, kind, name in includes(path):
            where = f"{path.name}:{number}: includes {name}"
            if kind == "<":
                if not SYSTEM_HEADERS.fullmatch(name) and name not in OWN_HEADERS.get(module, ()):
                    yield where
                continue
            if not (core / name).is_file():
                yield where + ", which is not in core"
                continue
            other = module_of(name[:-2])
            if other != module and other not in allowed:
                yield where
            elif other != module and name != f"{other}.h":
                yield where + f", which is {other}'s own affair"


def broken_floors(native):
    """Lines outside core that include from a floor above their own."""
    floors = {
        "core": ("core",),
        "shell": ("core", "shell", "include"),
        "binding": ("core", "shell", "include", "binding"),
        "include": ("include",),
        "sim": ("core", "sim"),
        "fuzz": ("core", "fuzz"),
        "examples": ("include",),
    }
    for floor, below in floors.items():
        for path in sorted((native / floor).glob("*.[ch]")):
            for number, kind, name in includes(path):
                if kind == "<":
                    continue
                homes = [path.parent / name, native / name, native / "include" / name]
                home = next((h for h in homes if h.is_file()), None)
                if home is None:
                    yield f"{floor}/{path.name}:{number}: {name} is nowhere"
                elif home.resolve().parent.name not in below:
                    yield f"{floor}/{path.name}:{number}: {floor} must not include {name}"


def test_core_includes_follow_the_table():
    assert list(broken_core_includes(NATIVE)) == []


def test_no_floor_includes_from_above():
    assert list(broken_floors(NATIVE)) == []


@pytest.mark.parametrize(
    "path, line",
    [
        ("core/rendezvous.c", '#include "store.h"'),
        ("core/rendezvous.c", '#include "shell/loop.h"'),
        ("core/rendezvous.c", "#include <sys/socket.h>"),
        ("core/rendezvous.c", "#include <stdio.h>"),
        ("core/view.c", '#include "rendezvous_state.h"'),
        ("core/surprise.c", '#include "base.h"'),
    ],
)
def test_the_core_check_notices(tmp_path, path, line):
    """The check fails on each kind of break, tried on a tree of its own."""
    (tmp_path / "core").mkdir()
    for name in ("base.h", "store.h", "rendezvous.h", "rendezvous_state.h"):
        (tmp_path / "core" / name).write_text("/* . */\n")
    (tmp_path / "core/view.h").write_text('/* . */\n#include "base.h"\n#include "rendezvous.h"\n')
    assert list(broken_core_includes(tmp_path)) == []
    (tmp_path / path).write_text(f"/* . */\n{line}\n")
    assert len(list(broken_core_includes(tmp_path))) == 1


@pytest.mark.parametrize(
    "path, line",
    [
        ("core/a.c", '#include "shell/loop.h"'),
        ("shell/a.c", '#include "binding/module.h"'),
        ("include/a.h", '#include "core/base.h"'),
        ("examples/a.c", '#include "shell/loop.h"'),
        ("sim/a.c", '#include "shell/loop.h"'),
        ("shell/a.c", '#include "nowhere.h"'),
    ],
)
def test_the_floor_check_notices(tmp_path, path, line):
    for name in ("core/base.h", "shell/loop.h", "binding/module.h", "sim/x.h", "examples/x.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("/* . */\n")
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(f"/* . */\n{line}\n")
    assert len(list(broken_floors(tmp_path))) == 1


def symbols(option, *objects):
    listed = subprocess.run(
        ["nm", option, "-P", *map(str, objects)], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    return {line.split()[0].split("@")[0] for line in listed.splitlines() if len(line.split()) > 1}


def test_core_calls_nothing_of_the_system(native_build):
    """Core is a state machine: no sockets, clocks, threads, heap, printing, randomness.
    Told by the symbols its objects leave undefined, which no macro can hide."""
    objects = sorted((native_build("check") / "core").glob("*.o"))
    assert len(objects) >= 5
    own = symbols("--defined-only", *objects)
    for path in objects:
        for name in sorted(symbols("--undefined-only", path) - own):
            if name in OWN_CALLS.get(path.stem, ()):
                continue
            assert CALLS.fullmatch(name), f"core/{path.stem}.c calls {name}"


def test_the_call_check_notices():
    for name in ("socket", "clock_gettime", "pthread_create", "malloc", "printf", "rand", "time"):
        assert not CALLS.fullmatch(name)


def tracked_files():
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "ls-files"],
            check=True, text=True, stdout=subprocess.PIPE,
        ).stdout
        return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]
    ignored = {".venv", "build", "dist", "__pycache__", ".pytest_cache"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not ignored & set(p.relative_to(ROOT).parts)]


def opening(path):
    """The first line of a file that says something."""
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    while lines and (lines[0].startswith("#!") or "# shellcheck" in lines[0]):
        lines.pop(0)
    return lines[0] if lines else ""


BEGINNINGS = {
    ".c": ("/*",), ".h": ("/*",), ".map": ("/*",),
    ".py": ('"""', "#", 'r"""'), ".pyi": ('"""', "#"),
    ".sh": ("#",), ".bats": ("#",), ".yml": ("#",), ".yaml": ("#",),
    "Makefile": ("#",), "Dockerfile": ("#",), "run": ("#",),
}  # fmt: skip


def test_every_source_file_begins_with_what_it_is():
    checked = 0
    for path in tracked_files():
        wanted = BEGINNINGS.get(path.suffix or path.name)
        if wanted is None or path.stat().st_size == 0:
            continue
        checked += 1
        assert opening(path).startswith(wanted), f"{path.relative_to(ROOT)} begins without a comment"
    assert checked > 20


def test_shell_scripts_are_clean():
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    scripts = [
        path
        for path in tracked_files()
        if path.suffix in (".sh", ".bats")
        or (not path.suffix and path.read_bytes()[:2] == b"#!" and b"sh" in path.read_bytes()[:30])
    ]
    assert len(scripts) >= 4
    checked = subprocess.run(
        ["shellcheck", "-x", *map(str, scripts)],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    assert checked.returncode == 0, checked.stdout


def test_the_public_header_stands_alone(tmp_path):
    """peerage.h compiles by itself, as C11 with all warnings, without our include paths."""
    source = tmp_path / "alone.c"
    source.write_text("#include <peerage.h>\n#include <peerage.h>\nint main(void) { return 0; }\n")
    done = subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
        + [f"-I{NATIVE / 'include'}", str(source)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
