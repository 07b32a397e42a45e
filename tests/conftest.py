"""What every test may use: a secret and a label of its own, ports nobody else has, the
environment of a node, and processes that are gone when the test is.

Nothing here reads the surroundings' PEER_ variables: a developer who has a fleet
configured in the shell must not see it join the tests.
"""

import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ports import Ports  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def room(alone):
    """Several processes of one test run share the machine (pytest -n): a test marked `alone`
    has it to itself. Whoever waits for that holds the turnstile, so that nobody enters
    meanwhile: it waits for the tests that run, no longer."""
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    with open(folder / "tests.lock", "w") as lock, open(folder / "turnstile.lock", "w") as turnstile:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Around the whole of a test: what it waits here is no part of its timeout."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with room(item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture
def secret():
    return secrets.token_hex(32)


@pytest.fixture
def label():
    return "test-" + secrets.token_hex(8)


@pytest.fixture
def ports():
    reserved = Ports()
    yield reserved
    reserved.close()


@pytest.fixture
def base_port(ports):
    return ports.base


def clean_environment():
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PEER") and name not in ("ENABLE_PEERS", "REDIS_URL")
    }


@pytest.fixture
def peers():
    """With the layer off."""
    import peerage

    made = peerage.Peers()
    yield made
    made.close()


@pytest.fixture
def cache(peers):
    return peers.cache("c", ttl=60)


def pytest_generate_tests(metafunc):
    """Marked `both_ways`: once over Unix sockets, which all here is one host's, and once as
    between hosts."""
    if metafunc.definition.get_closest_marker("both_ways") and "unix_sockets" in metafunc.fixturenames:
        metafunc.parametrize("unix_sockets", ["true", "false"], ids=["unix", "tcp"], indirect=True)


@pytest.fixture
def unix_sockets(request):
    return getattr(request, "param", "true")


@pytest.fixture
def peer_env(secret, label, base_port, unix_sockets):
    """make(**changes) -> the environment of one node of this test's cluster.
    Names as in the settings; a value of None takes the variable away."""

    def make(**changes):
        environment = clean_environment() | {
            "ENABLE_PEERS": "true",
            "PEER_SECRET": secret,
            "PEER_LABEL": label,
            "PEER_PORT": str(base_port),
            "PEER_PORT_RANGE": "16",
            "PEER_LISTEN": "127.0.0.1",
            "PEER_ADVERTISE_ADDR": "127.0.0.1",
            "PEER_UNIX_SOCKETS": unix_sockets,
        }
        for name, value in changes.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = str(value)
        return environment

    return make


@pytest.fixture
def spawn(tmp_path):
    """spawn(arguments, env=..., **popen) -> Popen in a session of its own, output in the
    file `process.log`. Whatever still runs at the test's end is killed, children too."""
    started = []

    def start(arguments, **options):
        log = tmp_path / f"process-{len(started)}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=options.pop("stdout", out),
                stderr=options.pop("stderr", subprocess.STDOUT),
                start_new_session=True,
                **options,
            )
        process.log = log
        started.append(process)
        return process

    yield start
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


@pytest.fixture(scope="session")
def native_build():
    """native_build(variant) -> the folder in which `make build-<variant>` has built the
    native tests; once per session and variant."""
    done = {}

    def build(variant):
        if variant not in done:
            # several processes of one test run may want the same
            folder = ROOT / "native" / "build"
            folder.mkdir(exist_ok=True)
            lock = open(folder / f"{variant}.lock", "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = subprocess.run(
                ["make", "-C", str(ROOT / "native"), f"-j{os.cpu_count() or 1}", f"build-{variant}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            lock.close()
            done[variant] = made
        made = done[variant]
        assert made.returncode == 0, made.stdout[-8000:]
        return ROOT / "native" / "build" / variant

    return build


@pytest.fixture
def worker(peer_env, tmp_path):
    """worker(**changes to the environment) -> Worker, not started yet: a process with one
    node of this test's cluster."""
    from workers import Worker

    made = []

    def make(**changes):
        made.append(Worker(peer_env(**changes), tmp_path / f"worker-{len(made)}.log"))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def fleet(worker):
    """fleet(n, **changes) -> n workers that have started and know each other."""
    from workers import joined

    def make(count, **changes):
        workers = [worker(**changes) for _ in range(count)]
        for started in [one.ask("astart") for one in workers]:
            started.result(20)
        return joined(workers)

    return make
