"""A wrong use is reported in one line, with exit code 2 and without a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest
import zmq.auth

import wmp
from tests.interop.programs.programs import ENVIRON, WMP, WMP_DEVICE
from tests.waiting import RUN

pytestmark = pytest.mark.interop

WORK = """
    def shout(payload):
        return payload.upper()

    quiet = lambda payload: payload

    def too_many(one, two, three):
        pass

    number = 7
    handlers = {"shout": shout}
"""

# arguments of `wmp`, and words of the line: the fault, the expected value, the remedy
CASES = [
    ("bogus", r"no such command 'bogus'; see wmp --help"),
    ("--bogus", r"no such option '--bogus'; see wmp --help"),
    ("worker --slot 3 work:shout", r"no such option '--slot'; did you mean '--slots'"),
    ("worker --slots many work:shout", r"'--slots': 'many' is not a valid integer"),
    ("worker --slots 0 work:shout", r"slots is 0; expected a whole number of at least 1"),
    ("worker --pool fiber work:shout", r"'fiber' is not one of 'thread', 'process', 'inline'"),
    ("worker", r"PACKAGE.MODULE:ATTRIBUTE, PACKAGE.MODULE, --pickle or -- COMMAND"),
    (
        "worker work:shout -- wc",
        r"PACKAGE.MODULE:ATTRIBUTE, PACKAGE.MODULE, --pickle or -- COMMAND",
    ),
    ("worker work:", r"'work:': expected PACKAGE.MODULE:ATTRIBUTE"),
    (
        "worker --pickle --connect tcp://192.0.2.1:5570",
        r"a worker that runs pickled calls refuses tcp://192.0.2.1:5570 without keys",
    ),
    ("worker --pickle -- wc", r"--pickle applies to functions only"),
    ("worker --pickle --role a", r"--role is for a function; leave out --role"),
    (
        "worker nowhere:f",
        r"no module 'nowhere' in .*; change to its folder, or install",
    ),
    ("worker work:nothing", r"the module 'work' has no attribute 'nothing'"),
    ("worker work:number", r"work:number is of type int; expected a function, a mapping"),
    ("worker work:too_many", r"takes \(one, two, three\); expected f\(payload\)"),
    ("worker raises:f", r"cannot import raises: ZeroDivisionError: .*raises.py:1\)"),
    ("worker wrong:f", r"cannot import wrong: SyntaxError: .*\(wrong.py, line 1\)$"),
    ("worker empty", r"the module 'empty' has no task, so .*decorate functions with @wmp.task"),
    ("worker lacks:f", r"cannot import lacks: No module named 'nowhere'"),
    ("worker work:quiet --pool process", r"cannot be sent to worker processes .*top of a module"),
    ("worker work:shout --resource gpu", r"--resource is 'gpu'; expected NAME=AMOUNT"),
    ("worker work:shout --resource gpu=1 --resource gpu=2", r"gives 'gpu' twice"),
    ("worker work:shout --connect 127.0.0.1:5570", r"expected tcp://HOST:PORT, ipc://PATH"),
    ("worker work:shout --connect tcp://127.0.0.1:*", r"the port is missing"),
    ("worker work:shout --secret no.key_secret", r"there is no file no.key_secret; make keys with"),
    ("worker work:shout --server no.key", r"--server needs --secret"),
    ("worker work:shout --secret a.key_secret", r"--secret needs --server FILE: the .key file"),
    ("worker work:shout --connect inproc://x", r"inproc reaches only nodes of the same process"),
    ("worker --role a --role b --role a -- wc", r"--role names 'a' twice"),
    ("worker work:handlers --role a", r"work:handlers sets its own roles; leave out --role"),
    ("worker ready:worker --slots 3", r"--slots cannot change ready:worker"),
    ("worker -- nosuchcommand", r"'nosuchcommand' was not found .*give its path"),
    ("worker --", r"the command is empty"),
    ("worker --pool process -- wc", r"--pool applies to functions only"),
    ("worker work:shout --output text", r"--output is for a COMMAND"),
    ("worker ready:worker --output text", r"--output is for a COMMAND"),
    ("worker --output yaml -- wc", r"'yaml' is not one of 'json', 'text', 'bytes'"),
    (
        "worker --output bytes --dispatcher http://127.0.0.1:1 -- wc",
        r"--output bytes has no effect with --dispatcher, whose results are JSON",
    ),
    (
        "worker --pickle --dispatcher http://127.0.0.1:1",
        r"--pickle has no effect with --dispatcher",
    ),
    ("map nowhere.txt", r"there is no file nowhere.txt"),
    ("map .", r"\. is a folder; name files"),
    (
        "map --bind tcp://0.0.0.0:5570 work.py",
        r"without keys: .*; make keys with `wmp keys NAME` and add --secret NAME.key_secret",
    ),
    ("map --bind inproc://x work.py", r"inproc reaches only nodes of the same process; use ipc:"),
    ("map --bind ipc://nowhere/x work.py", r"there is no folder nowhere; make it first$"),
    ("map --bind nonsense work.py", r"cannot bind to 'nonsense': expected tcp://HOST:PORT"),
    ("map --bind tcp://127.0.0.1:99999 work.py", r"the port is above 65535; name a smaller one"),
    ("map --need gpu=x work.py", r"--need is 'gpu=x'; expected NAME=AMOUNT"),
    ("map --timeout 0 work.py", r"timeout is 0.0; expected a number of seconds, more than 0"),
    ("map --timeout inf work.py", r"timeout is inf; expected a number of seconds"),
    ("map --run-limit -1 work.py", r"run-limit is -1.0; expected a number of seconds, more than 0"),
    ("map --expires 5 --timeout 2 work.py", r"expires is 5 s and timeout 2 s"),
    ("map --timeout nan work.py", r"timeout is nan; expected a number of seconds"),
    ("demo --workers 1", r"add --no-kill"),
    ("demo --workers 0", r"0 is not in the range 1<=x<=64"),
    ("keys nowhere/a", r"there is no folder nowhere"),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work.py").write_text(textwrap.dedent(WORK))
    (tmp_path / "raises.py").write_text("1 / 0\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "empty.py").write_text("import os\n")
    (tmp_path / "lacks.py").write_text("import nowhere\n")
    (tmp_path / "ready.py").write_text(
        "import wmp\nworker = wmp.Worker('ipc://x', handlers=bytes.upper)\n"
    )
    _, secret = zmq.auth.create_certificates(tmp_path, "a")
    os.chmod(secret, 0o600)  # a key that others can read is refused
    return tmp_path


def run(*argv, cwd):
    return subprocess.run(
        argv,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=RUN,
        stdin=subprocess.DEVNULL,
        env=ENVIRON,
    )


def complaint(process, program="wmp"):
    """Return the only line of stderr; check that there is no other output."""
    assert (process.returncode, process.stdout) == (2, ""), process.stderr
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    assert lines[0].startswith(f"{program}: ")
    assert "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize(("arguments", "expected"), CASES, ids=[case[0] for case in CASES])
def test_one_line(forks, folder, arguments, expected):
    line = complaint(forks.run(*WMP, *arguments.split(), cwd=folder))

    assert re.search(expected, line), line


DEVICE_CASES = [
    ("--bogus", r"no such option '--bogus'.*; see wmp-device --help"),
    ("--bind nonsense", r"cannot bind to 'nonsense': expected tcp://HOST:PORT"),
    ("--connect tcp://127.0.0.1:*", r"the port is missing"),
    ("--bind tcp://0.0.0.0:5571", r"without keys: .* add --secret NAME.key_secret"),
    ("--bind ipc://a --connect ipc://a", r"--connect ipc://a is the address of this device"),
    ("--connect inproc://a", r"inproc reaches only nodes of the same process"),
    ("--allowed .", r"--allowed needs --secret"),
    ("--secret a.key_secret", r"--secret needs --server FILE"),
    ("--secret a.key_secret --connect ipc://a", r"--secret needs --server FILE"),
    ("--max-hops 17", r"--max-hops is 17; expected a number from 1 to 16"),
    ("run", r"missing argument 'FILE'"),
    ("run nowhere.toml", r"cannot read nowhere.toml: no such file"),
    ("check .", r"cannot read \.: is a directory"),
    ("check broken.toml", r"broken.toml is not TOML: .*line 1"),
    ("--bind ipc://x run broken.toml", r"put no option before run"),
]


@pytest.mark.parametrize(
    ("arguments", "expected"), DEVICE_CASES, ids=[case[0] for case in DEVICE_CASES]
)
def test_one_line_of_the_device(forks, folder, arguments, expected):
    (folder / "broken.toml").write_text("this is no TOML")
    line = complaint(forks.run(*WMP_DEVICE, *arguments.split(), cwd=folder), "wmp-device")

    assert re.search(expected, line), line


def test_an_address_in_use(forks, folder):
    with wmp.Manager() as manager:
        bind = ("--bind", manager.endpoints[0])
        lines = [
            complaint(forks.run(*WMP, "map", *bind, "work.py", cwd=folder)),
            complaint(forks.run(*WMP_DEVICE, *bind, cwd=folder), "wmp-device"),
        ]

    for line in lines:
        assert manager.endpoints[0] in line
        assert "address already in use; choose another address, or stop the process" in line


@pytest.mark.parametrize(
    ("program", "function", "missing"),
    [("wmp", "wmp", "click"), ("wmp", "wmp", "rich"), ("wmp-device", "device", "click")],
)
def test_without_the_extra_the_error_names_the_package_to_install(
    folder, program, function, missing
):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = [{program!r}, '--help']; "
        f"import wmp_programs; wmp_programs.{function}()"
    )
    line = complaint(run(sys.executable, "-c", code, cwd=folder), program)

    assert f"{missing} is not installed; run: pip install 'worker-manager-protocol[cli]'" in line


def test_help_teaches_by_examples(forks, folder):
    for argv in (
        WMP,
        (*WMP, "worker"),
        (*WMP, "map"),
        (*WMP, "demo"),
        (*WMP, "keys"),
        WMP_DEVICE,
        (*WMP_DEVICE, "run"),
        (*WMP_DEVICE, "check"),
    ):
        process = forks.run(*argv, "--help", cwd=folder)

        assert (process.returncode, process.stderr) == (0, "")
        examples = process.stdout.partition("\nExamples:\n")[2].splitlines()
        assert examples, process.stdout
        name = "wmp-device" if argv[: len(WMP_DEVICE)] == WMP_DEVICE else "wmp"
        assert all(name in example for example in examples)


def test_help_has_whole_sentences_and_a_text_for_every_flag(forks, folder):
    listed = forks.run(*WMP, "--help", cwd=folder).stdout
    assert "..." not in listed.partition("\nCommands:\n")[2]
    assert "Python function" in listed
    for argv in (*((*WMP, name) for name in ("worker", "map", "demo", "keys")), WMP_DEVICE):
        options = forks.run(*argv, "--help", cwd=folder).stdout.partition("\nOptions:\n")[2]
        # For a flag without a help text, the help would show nothing, or only the default.
        assert not re.findall(r"^  -.*[A-Z=]+(?:  +\[default:.*)?$", options, re.MULTILINE), options


def test_version(forks, folder):
    for process in (
        run(*WMP, "--version", cwd=folder),
        forks.run(*WMP_DEVICE, "--version", cwd=folder),
    ):
        assert (process.returncode, process.stderr) == (0, "")
        assert re.fullmatch(r"wmp (\d+\.\d+\.\d+\S*|0\+source)\n", process.stdout)


def test_without_a_command_there_is_help(forks, folder):
    process = forks.run(*WMP, cwd=folder)

    assert (process.returncode, process.stdout) == (2, "")
    assert "Usage: wmp" in process.stderr


def test_keys_are_for_their_owner_and_never_overwritten(forks, folder):
    process = forks.run(*WMP, "keys", "ada", cwd=folder)
    assert process.returncode == 0
    secret = folder / "ada.key_secret"
    before = secret.read_bytes()

    assert secret.stat().st_mode & 0o077 == 0
    assert b"secret-key" not in (folder / "ada.key").read_bytes()
    assert "already exists" in complaint(forks.run(*WMP, "keys", "ada", cwd=folder))
    assert secret.read_bytes() == before
