"""What the documents show works: every block of Python runs, and every line of shell names
commands, files, options and targets that exist. (The lines that take minutes, or a server,
have tests of their own; here their words are held against the tree.)"""

import ast
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What a reader of the page has: an upstream to fetch from, the layer, a running event loop.
PREAMBLE = """
import ast, asyncio, sys
import peerage
fetched = []
async def fetch(channel, before=None):
    fetched.append(channel)
    return f"page of {channel}".encode()
async def main(source):
    space = {"fetch": fetch, "peers": peerage.Peers.from_env(), "__name__": "documented"}
    code = compile(source, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, space)
    if asyncio.iscoroutine(result):
        await result
asyncio.run(main(sys.stdin.read()))
"""

# From outside the project; everything else must be in it.
FOREIGN = {
    "apt-get", "awk", "cat", "cd", "curl", "docker", "docker-compose", "echo", "git", "gunicorn",
    "ip", "journalctl", "kubectl", "make", "nft", "openssl", "pip", "pytest", "python", "python3",
    "ssh", "sudo", "systemctl", "ufw", "uvicorn",
}


def blocks(*languages):
    return list(each_block(languages))


def each_block(languages):
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match[1] in languages:
                yield pytest.param(match[2], id=f"{page.name}:{line}")


def test_every_block_says_what_it_is_or_is_a_drawing():
    known = {"", "python", "sh", "c", "yaml", "ini", "nginx", "json", "text"}
    for page in PAGES:
        assert page.read_text().count("```") % 2 == 0, page
        for match in BLOCK.finditer(page.read_text()):
            assert match[1] in known, f"{page.name}: a block of {match[1]}"


@pytest.mark.parametrize("source", blocks("python"))
def test_python_runs(source):
    ast.parse(source)
    done = subprocess.run([sys.executable, "-c", PREAMBLE], input=source, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def commands(source):
    """Each command of the block as its words, without assignments, comments, pipes."""
    joined = source.replace("\\\n", " ")
    for inner in re.findall(r"\$\(([^()]*)\)", joined):
        yield from commands(inner)
    joined = re.sub(r"\$\(([^()]*)\)", "made", joined)
    for line in joined.splitlines():
        for part in re.split(r"&&|\|\||;|\|", line.split(" # ")[0]):
            words = shlex.split(part, comments=True)
            while words and (re.fullmatch(r"[A-Z_][A-Z_0-9]*=.*", words[0]) or
                             words[0] in ("export", "sudo", "env")):
                words.pop(0)
            if words and not re.fullmatch(r"[A-Z_][A-Z_0-9]*=.*", words[0]):
                yield words


def check_options(program, words):
    source = program.read_text()
    if program.suffix == ".py" and "add_argument" not in source:
        source += "".join(p.read_text() for p in (ROOT / "python/peerage/demo").rglob("*.py"))
    if program.name == "demo.sh":       # hands its options on to the load test
        source += "".join(p.read_text() for p in (ROOT / "python/peerage/demo").rglob("*.py"))
    for word in words:
        if word.startswith("--"):
            option = word.split("=")[0]
            assert option in source, f"{program.name} knows no {option}"


def check_make(words):
    folder = ROOT / words[words.index("-C") + 1] if "-C" in words else ROOT
    makefile = (folder / "Makefile").read_text()
    skip = False
    for word in words:
        if skip or word == "-C":
            skip = not skip
        elif "=" not in word and not word.startswith("-"):
            assert re.search(rf"^{re.escape(word)}\b.*:", makefile, re.MULTILINE), \
                f"no target {word}"


@pytest.mark.parametrize("source", blocks("sh"))
def test_shell_names_what_exists(source):
    subprocess.run(["bash", "-n"], input=source, text=True, check=True)
    for words in commands(source):
        program, rest = words[0], words[1:]
        if (ROOT / program).is_file():
            check_options(ROOT / program, rest)
        else:
            assert program in FOREIGN or program == "peerage", f"what is {program}?"
        if program == "make":
            check_make(rest)
        if program in ("python", "python3") and rest[:1] == ["-m"] and \
                rest[1].startswith("peerage"):
            module = ROOT / "python" / rest[1].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        for word in rest:
            if re.match(r"(scripts|deploy|tests|native|docs|python)/[\w./-]+$", word) and \
                    "build/" not in word:
                assert (ROOT / word).exists(), f"no file {word}"


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_named_in_the_text_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:scripts|deploy|tests|native|docs|python)/[\w./-]+)`",
                               page.read_text()):
            if "build/" not in name:
                assert (ROOT / name).exists(), f"{page.name}: {name}"


def names_of_table(page, heading):
    """The names in the first column of a table under a heading."""
    section = (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    first = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return re.findall(r"`([^`]+)`", " ".join(first))


def test_every_counter_is_explained_and_none_is_made_up():
    source = (ROOT / "native/shell/stats.c").read_text()
    counted = set(re.findall(r'"([a-z_]+)"', source))
    explained = names_of_table("docs/ARCHITECTURE.md", "Counters")
    assert len(explained) == len(set(explained))
    refused = {name for name in counted if name.startswith("refused_")}
    assert counted - refused == set(explained) - {"refused_..."}
    reasons = re.search(r"by reason: `([a-z ]+)`", (ROOT / "docs/ARCHITECTURE.md").read_text())
    assert refused == {f"refused_{reason}" for reason in reasons[1].split()}


def test_what_operations_looks_at_is_counted():
    counted = set(re.findall(r'"([a-z_]+)"', (ROOT / "native/shell/stats.c").read_text()))
    looked_at = names_of_table("docs/OPERATIONS.md", "What the counters mean")
    assert set(looked_at) <= counted, set(looked_at) - counted


def test_every_setting_is_in_the_table():
    from peerage import settings

    documented = {n for n in names_of_table("README.md", "Settings") if n.isupper()}
    assert documented == {setting.variable for setting in settings.SETTINGS}


def test_log_lines_are_said_in_these_words():
    """The beginning of each line that OPERATIONS explains, up to what varies in it."""
    sources = [p.read_text() for p in (ROOT / "native").glob("*/*.c")]
    said = re.sub(r'"\s*\n\s*"', "", "".join(sources))
    said = re.sub(r"%[0-9.*]*l*[a-z]", "...", said)
    for line in names_of_table("docs/OPERATIONS.md", "What the log lines mean"):
        for part in filter(None, (part.strip(" :()") for part in line.split("..."))):
            assert part in said, line


def test_a_rule_that_is_named_can_be_looked_up():
    named = set()
    for folder in ("native", "python", "tests", "scripts", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".c", ".h", ".py") and "build" not in path.parts:
                named |= set(re.findall(r"(?:\(|rules? |, |^ \* |\"\"\")([WMODTCRPKVB]\d{1,2})\b",
                                        path.read_text(), re.MULTILINE))
    rules = (ROOT / "docs/RULES.md").read_text()
    assert len(named) > 30, "the pattern finds them"
    assert named <= set(re.findall(r"^\| ([A-Z]\d+) \|", rules, re.MULTILINE))
