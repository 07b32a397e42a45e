"""Each bats test of tests/*/ as a pytest item; a skip there is a skip here."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

BATS = [
    pytest.param(
        path,
        name,
        id=f"{path.stem}: {name}",
        marks=pytest.mark.alone if path.stem == "two-servers" else (),
    )
    for path in sorted((ROOT / "tests").glob("*/*.bats"))
    for name in re.findall(r'^@test "(.*)" \{$', path.read_text(), re.MULTILINE)
]


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("bats") is None, reason="no bats")
@pytest.mark.parametrize("path, name", BATS)
def test_bats(path, name):
    pattern = "^" + re.escape(name).replace(r"\ ", " ").replace(r"\-", "-") + "$"
    done = subprocess.run(
        ["bats", "--tap", "--filter", pattern, str(path)],
        env=os.environ | {"PYTHON": sys.executable},
        stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    skipped = re.search(r"^ok 1 .*# skip ?(.*)$", done.stdout, re.MULTILINE)
    if skipped:
        pytest.skip(skipped.group(1))
    assert done.returncode == 0, done.stdout
    assert re.search(r"^ok 1 ", done.stdout, re.MULTILINE), done.stdout
