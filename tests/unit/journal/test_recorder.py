"""The files of a node's journal, and the effect of write errors."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from tests.waiting import WAIT, wait_until
from wmp.core.protocol.settings import ManagerSettings
from wmp.errors import ConfigError
from wmp.events import Cancelled, Ticked
from wmp.journal.reader import Reader, find_segments, segments_in
from wmp.runtime.common.journal import Journal
from wmp.runtime.common.recorder import Recorder

SETTINGS = ManagerSettings(identity=b"m", epoch=5)


class Troubled(Journal):
    """A journal whose disk is full at times."""

    def open(self, path: Path) -> int:
        file = Journal.open(self, path)
        FILES.append(file)
        return file


FILES: list[int] = []


@pytest.fixture(autouse=True)
def no_files():
    FILES.clear()


def read(folder: Path) -> list[dict]:
    reader = Reader()
    lines = [dict(line) for segment in find_segments([folder]) for line in reader.read(segment)]
    assert not reader.bad
    return lines


def record(journal: Journal, *steps: object) -> Recorder:
    """Write a journal of these steps, and close it."""

    async def run() -> Recorder:
        recorder = Recorder.begin(journal, SETTINGS, (), asyncio.get_running_loop())
        for number, step in enumerate(steps):
            if callable(step):
                step(recorder)
            else:
                recorder.step(step, (), float(number))
        recorder.stop()
        recorder.wait(10.0)
        return recorder

    return asyncio.run(run())


def test_a_journal_is_a_segment_of_lines_that_gets_its_name_at_the_end(tmp_path):
    def look(recorder: Recorder) -> None:
        wait_until(lambda: any(tmp_path.iterdir()))
        (segment,) = tmp_path.iterdir()
        assert segment.name == ".m-5-000001.jsonl"

    record(Journal(tmp_path), Cancelled((1,)), look)

    (segment,) = tmp_path.iterdir()
    assert segment.name == "m-5-000001.jsonl"
    lines = read(tmp_path)
    assert [line["what"] for line in lines] == ["start", "cancelled", "stop"]
    assert [line["n"] for line in lines] == [0, 1, 2]
    assert (lines[0]["kind"], lines[0]["pid"]) == ("manager", os.getpid())
    assert lines[-1]["lines"] == 0


def test_lines_are_in_the_file_while_the_node_runs(tmp_path):
    def look(recorder: Recorder) -> None:
        wait_until(lambda: any(tmp_path.iterdir()) and len(read(tmp_path)) == 2)

    record(Journal(tmp_path, flush=0.0), Cancelled((1,)), look)


def test_a_folder_that_cannot_be_read_is_an_error_and_not_an_empty_journal(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot read the folder .*file: not a directory"):
        segments_in(tmp_path / "file")


def test_segments_end_by_size_and_each_begins_with_a_line_about_its_writer(tmp_path):
    def look(recorder: Recorder) -> None:
        size = len(segments_in(tmp_path))
        recorder.step(Cancelled((1,)), (), 1.0)
        wait_until(lambda: len(segments_in(tmp_path)) > max(1, size))

    record(Journal(tmp_path, segment_bytes=300, flush=0.0), Cancelled((1,)), look, look, look)

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"m-5-{number:06}.jsonl" for number in range(1, len(names) + 1)]
    assert len(names) > 3
    for path in tmp_path.iterdir():
        assert json.loads(path.read_text().splitlines()[0])["what"] == "start"
    lines = read(tmp_path)
    assert [line["segment"] for line in lines if line["what"] == "start"] == [
        *range(1, len(names) + 1)
    ]
    numbers = [line["n"] for line in lines if line["n"]]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_segments_are_ended_by_age(tmp_path):
    def look(recorder: Recorder) -> None:
        recorder.step(Cancelled((1,)), (), 1.0)
        wait_until(lambda: len(segments_in(tmp_path)) > 1)

    record(Journal(tmp_path, segment_age=1e-6, flush=0.0), Cancelled((1,)), look)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_costs_lines_which_are_counted_and_nothing_else(tmp_path, caplog):
    def fill(recorder: Recorder) -> None:
        wait_until(lambda: any(tmp_path.iterdir()) and len(read(tmp_path)) == 2)
        full = os.open("/dev/full", os.O_WRONLY)
        try:
            FILES.append(os.dup(FILES[0]))
            os.dup2(full, FILES[0])
        finally:
            os.close(full)

    def lose(recorder: Recorder) -> None:
        wait_until(lambda: recorder.lost == 1)

    def clear(recorder: Recorder) -> None:
        os.dup2(FILES[1], FILES[0])
        os.close(FILES[1])

    recorder = record(
        Troubled(tmp_path, flush=0.0),
        Cancelled((1,)),
        fill,
        Cancelled((2,)),
        lose,
        clear,
        Cancelled((3,)),
    )

    lines = read(tmp_path)
    assert [line["what"] for line in lines] == ["start", "cancelled", "cancelled", "lost", "stop"]
    assert [line["ids"] for line in lines if "ids" in line] == [[1], [3]]
    assert [line["n"] for line in lines] == [0, 1, 3, 4, 5]
    assert (lines[3]["lines"], lines[3]["reason"], lines[4]["lines"]) == (1, "failed write", 1)
    assert recorder.lost == 1
    (log_record,) = [entry for entry in caplog.records if "lines were lost" in entry.message]
    assert "no space left" in log_record.message.lower()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_segment_that_cannot_be_begun_is_tried_again(tmp_path):
    """Every file must begin with a line that names the writer."""

    class Narrow(Journal):
        def open(self, path: Path) -> int:
            FILES.append(Journal.open(self, path))
            if len(FILES) == 3:
                full = os.open("/dev/full", os.O_WRONLY)
                os.dup2(full, FILES[2])
                os.close(full)
            return FILES[-1]

    def lose(recorder: Recorder) -> None:
        wait_until(lambda: recorder.lost == 1)
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)

    def first(recorder: Recorder) -> None:
        wait_until(lambda: any("ids" in line for line in read(tmp_path)))

    journal = Narrow(tmp_path, segment_bytes=1, flush=0.0)
    record(journal, Cancelled((1,)), first, Cancelled((2,)), lose, Cancelled((3,)))

    lines = read(tmp_path)
    assert [line["segment"] for line in lines if line["what"] == "start"][:3] == [1, 2, 3]
    assert [line["ids"] for line in lines if "ids" in line] == [[1], [3]]
    assert all(path.stat().st_size for path in tmp_path.iterdir())


def test_partly_written_lines_are_removed_when_the_disk_is_full(tmp_path, monkeypatch):
    """Otherwise the next line would stand behind half of another line."""
    write, calls = os.write, []

    def half(file: int, data: bytes) -> int:
        if file not in FILES:
            return write(file, data)
        calls.append(data)
        if len(calls) == 2:  # a write after the start
            return write(file, bytes(data)[: len(data) // 2])
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", half)

    record(
        Troubled(tmp_path, flush=0.0),
        Cancelled((1,)),
        lambda r: wait_until(lambda: r.lost),
        Ticked(),
    )

    assert [line["what"] for line in read(tmp_path)] == ["start", "lost", "stop"]


def test_a_blocked_disk_does_not_stall_the_node(tmp_path):
    """The writer hangs in a pipe without a reader. The node continues, and can be closed."""

    class Pipe(Journal):
        def open(self, path: Path) -> int:
            FILES.extend(os.pipe())
            path.touch()
            return FILES[1]

    def much(recorder: Recorder) -> None:
        for number in range(2_000):
            recorder.step(Cancelled([number] * 100), (), 0.0)
        assert recorder.lost > 1_000
        recorder.stop()
        recorder.wait(0.01)

    def let_go() -> None:
        while os.read(FILES[0], 1 << 16):
            pass

    reading = threading.Thread(target=let_go)
    journal = Pipe(tmp_path, flush=0.0, buffer=100_000)
    recorder = record(journal, much, lambda _: reading.start())
    reading.join(WAIT)

    assert not reading.is_alive()
    os.close(FILES[0])
    assert recorder.lost > 1_000


def test_a_journal_that_is_closed_with_a_full_buffer_counts_its_losses_and_stops(tmp_path):
    """The disk continues only after the end of the journal."""
    blocked = threading.Event()
    go = threading.Event()

    def block(recorder: Recorder) -> None:
        write = recorder._writer._write

        def wait(lines: list[str]) -> None:
            blocked.set()
            assert go.wait(WAIT)
            write(lines)

        recorder._writer._write = wait
        recorder.step(Cancelled([0]), (), 0.0)
        assert blocked.wait(WAIT)

    def fill(recorder: Recorder) -> None:
        number = 0
        while recorder.lost < 10:
            number += 1
            recorder.step(Cancelled([number]), (), 0.0)

    def end(recorder: Recorder) -> None:
        recorder.stop()
        go.set()

    recorder = record(Journal(tmp_path, flush=0.0, buffer=2_000), block, fill, end)

    *_, lost, stop = lines = read(tmp_path)
    assert (lost["what"], lost["lines"]) == ("lost", 10)
    assert (stop["what"], stop["lines"]) == ("stop", 10)
    assert stop["n"] + 1 - len(lines) == 10 == recorder.lost


def test_a_defect_of_the_journal_does_not_reach_the_node(tmp_path):
    recorder = record(Journal(tmp_path), Cancelled(5), Cancelled((1,)))

    assert recorder.lost == 1
    assert [line["ids"] for line in read(tmp_path) if "ids" in line][-1] == [1]


def test_an_idle_journal_writes_beats(tmp_path):
    async def run() -> None:
        recorder = Recorder.begin(
            Journal(tmp_path, beat=0.01, flush=0.0), SETTINGS, (), asyncio.get_running_loop()
        )
        while not any(line["what"] == "beat" for line in read(tmp_path)):
            await asyncio.sleep(0.01)
        recorder.stop()
        recorder.wait()

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("folder", ["/proc/journal", "/etc/passwd", "/dev/null/journal"])
def test_a_folder_in_which_nothing_can_be_written_is_refused(folder):
    with pytest.raises(ConfigError, match="cannot write a journal to"):
        record(Journal(folder))


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 0},
        {"segment_age": 0},
        {"flush": -1},
        {"buffer": "much"},
        {"beat": 0},
        {"folder": ""},
        {"folder": 5},
        {"folder": None},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, tmp_path):
    with pytest.raises(ConfigError):
        Journal(**{"folder": tmp_path, **wrong})


def test_two_journals_of_one_node_do_not_write_into_one_file(tmp_path):
    record(Journal(tmp_path), Cancelled((1,)))
    (tmp_path / ".m-5-000001.jsonl").touch()

    with pytest.raises(ConfigError, match="file exists"):
        record(Journal(tmp_path))


def test_a_segment_that_is_finished_while_it_is_looked_for_is_found(tmp_path, monkeypatch):
    (tmp_path / "m-5-000001.jsonl").write_text("")
    before = tmp_path / ".m-5-000001.jsonl"  # the name that the file had when the folder was listed
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: iter([before]))

    assert find_segments([tmp_path]) == [tmp_path / "m-5-000001.jsonl"]
