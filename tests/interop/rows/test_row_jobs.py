"""Tables through a device to workers and back (specs/rows.md), with real sockets, without Spark."""

from __future__ import annotations

import logging
import re
import threading

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install -e '.[rows]'")
pytest.importorskip("pyarrow.compute")

import wmp  # noqa: E402 - needs pyarrow
from tests.waiting import WAIT, wait_until  # noqa: E402
from wmp import rows  # noqa: E402
from wmp.errors import ClosedError, NoWorkers, RowsFailed  # noqa: E402
from wmp.rows import row_jobs  # noqa: E402
from wmp.rows.process_managers import close_managers, process_manager  # noqa: E402

pytestmark = pytest.mark.interop

SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("square", pyarrow.int64())])
PARTITION = rows.TablePartition("query", 7, 3)


@pytest.fixture
def device():
    with wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device:
        yield device
        close_managers()


@pytest.fixture
def run(device):
    """Return a function that does tables of numbers, in batches of 10 rows."""

    def run(batches=4, schema=SCHEMA, partition=PARTITION, **options):
        terms = terms_of(device, **options)
        numbers = table(batches) if isinstance(batches, int) else batches
        return rows.run_rows(process_manager(terms), numbers, schema, terms, partition)

    return run


def terms_of(device, **options):
    return rows.RowTerms(through=device.manager_endpoints, **{"rows_per_job": 5} | options)


def table(batches):
    for batch in range(batches):
        yield pyarrow.record_batch({"n": list(range(10 * batch, 10 * batch + 10))})


def numbers_of(results):
    return [n for batch in results for n in batch["n"].to_pylist()]


def worker(device, function, role="default", **options):
    return wmp.Worker(
        *device.endpoints, handlers={role: rows.row_handler("batch")(function)}, **options
    )


def square(batch):
    return {"n": batch["n"], "square": pyarrow.compute.multiply(batch["n"], batch["n"])}


@pytest.mark.rule("ROWS-4.1", "ROWS-4.4")
@pytest.mark.parametrize("ordered", [False, True])
def test_each_row_returns_once_with_its_result(device, run, ordered):
    with worker(device, square, slots=3):
        results = list(run(ordered=ordered))

    assert all(batch.schema.equals(SCHEMA) for batch in results)
    pairs = [(row["n"], row["square"]) for batch in results for row in batch.to_pylist()]
    assert (pairs if ordered else sorted(pairs)) == [(n, n * n) for n in range(40)]


@pytest.mark.rule("ROWS-4.1")
def test_a_slow_piece_keeps_back_no_other_piece_unless_the_order_counts(device, run):
    go = threading.Event()

    def first_waits(batch):
        if batch["n"][0].as_py() == 0:
            assert go.wait(WAIT)
        return square(batch)

    with worker(device, first_waits, slots=2, window=0):
        results = run()
        others = [next(results) for _ in range(7)]
        go.set()

        assert sorted(numbers_of(others)) == list(range(5, 40))
        assert numbers_of(results) == list(range(5))


@pytest.mark.rule("ROWS-2.3")
@pytest.mark.parametrize("ordered", [False, True])
def test_no_more_pieces_are_under_way_than_agreed(device, run, ordered):
    taken, read, maximum = [], [], []

    def counted():
        for batch in table(20):
            read.append(1)
            yield from (batch.slice(0, 5), batch.slice(5))

    with worker(device, square, slots=4):
        for _ in run(counted(), in_flight=3, ordered=ordered):
            taken.append(1)
            maximum.append(2 * len(read) - len(taken))

    # Two pieces of the batch that was read last may wait here.
    assert len(taken) == 40
    assert max(maximum) <= 3 + 2


@pytest.mark.rule("ROWS-4.2", "ROWS-3.4")
def test_the_first_error_names_its_rows_and_cancels_the_others(device, run):
    began, stopped = threading.Event(), threading.Event()

    @rows.row_handler("row")
    def fails(row, job):
        if row["n"] == 7:
            assert began.wait(WAIT)
            raise ZeroDivisionError("no")
        if row["n"] >= 10:
            began.set()
            wait_until(lambda: job.cancelled, "the job is cancelled")
            stopped.set()
        return {"n": row["n"], "square": 0}

    with wmp.Worker(*device.endpoints, handlers={"f": fails}, slots=2, window=0):
        with pytest.raises(RowsFailed) as caught:
            list(run(role="f"))
        assert stopped.wait(WAIT)

    text = "rows 5 to 9 of partition 3 of batch 7 of query query failed at role 'f' in row 7"
    assert str(caught.value) == f"{text}: ZeroDivisionError: no"
    assert isinstance(caught.value.__cause__, wmp.JobFailed)
    assert (caught.value.partition, caught.value.first_row, caught.value.rows) == (3, 5, 5)


@pytest.mark.rule("ROWS-4.2")
def test_a_reader_that_stops_early_cancels_the_pieces(device, run):
    stopped = threading.Event()

    @rows.row_handler("batch")
    def waits(batch, job):
        if batch["n"][0].as_py():
            wait_until(lambda: job.cancelled, "the job is cancelled")
            stopped.set()
        return square(batch)

    with wmp.Worker(*device.endpoints, handlers=waits, slots=2):
        results = run()
        next(results)
        results.close()
        assert stopped.wait(WAIT)


@pytest.mark.rule("ROWS-4.3", "ROWS-4.4")
def test_errors_become_rows_of_the_column(device, run):
    def fails(batch):
        first = batch["n"][0].as_py()
        if first == 5:
            raise ValueError("five")
        return {"n": batch["n"]} if first == 10 else square(batch)

    with worker(device, fails, slots=2):
        results = list(run(errors="column", ordered=True))

    result_rows = [row for batch in results for row in batch.to_pylist()]
    assert [row["n"] for row in result_rows] == list(range(40))
    good = [row for row in result_rows if not 5 <= row["n"] < 15]
    assert all(row["error"] is None and row["square"] == row["n"] ** 2 for row in good)
    assert {row["square"] for row in result_rows[5:15]} == {None}
    assert re.search("rows 5 to 9 of .* ValueError: five", result_rows[5]["error"])
    assert "the result has the columns n; expected n, square" in result_rows[10]["error"]


@pytest.mark.rule("ROWS-4.4")
def test_the_submitter_checks_results_of_workers_without_the_adapter(device, run):
    with (
        wmp.Worker(*device.endpoints, handlers=lambda batch: batch),
        pytest.raises(RowsFailed, match="the result has the columns n; expected n, square"),
    ):
        list(run())


@pytest.mark.rule("ROWS-3.5")
def test_a_handler_of_bytes_is_named(device, run):
    with (
        wmp.Worker(*device.endpoints, handlers=lambda batch: b"bytes without a stream"),
        pytest.raises(RowsFailed, match="cannot be decoded by codec 'arrow'"),
    ):
        list(run())


@pytest.mark.rule("ROWS-4.5")
@pytest.mark.parametrize("errors", ["raise", "column"])
@pytest.mark.parametrize("other", [False, True])
def test_a_role_without_workers_is_an_error_after_the_wait(device, run, monkeypatch, errors, other):
    monkeypatch.setattr(row_jobs, "_LOOK", 0.02)
    helper = worker(device, square, role="embod" if other else "embed")
    run_results = run(role="embed", unserved=0.5, errors=errors)
    if other:
        helper.start()
        process_manager(terms_of(device)).wait_for_workers(role="embod", timeout=WAIT)

    with pytest.raises(NoWorkers) as caught:
        list(run_results)
    helper.close()

    text = str(caught.value)
    assert f"no worker for role 'embed' of {PARTITION} within 0.5 s" in text
    assert device.manager_endpoints[0] in text
    if other:
        assert "embod" in text


@pytest.mark.rule("ROWS-4.5")
def test_a_worker_that_comes_late_is_waited_for(device, run, monkeypatch):
    monkeypatch.setattr(row_jobs, "_LOOK", 0.02)
    late = worker(device, square)
    looks = []
    real = row_jobs._Partition._unserved

    def look(self):
        looks.append(1)
        if len(looks) == 3:
            late.start()
        return real(self)

    monkeypatch.setattr(row_jobs._Partition, "_unserved", look)

    assert sorted(numbers_of(run(unserved=30))) == list(range(40))
    late.close()
    assert len(looks) >= 3


@pytest.mark.rule("ROWS-4.6")
def test_a_long_silence_is_logged_with_its_numbers(device, run, monkeypatch, caplog):
    monkeypatch.setattr(row_jobs, "_LOOK", 0.02)
    monkeypatch.setattr(row_jobs, "_SILENT", 0.1)
    seen = threading.Event()

    def waits(batch):
        assert seen.wait(WAIT)
        return square(batch)

    class Seen(logging.Handler):
        def emit(self, record):
            if len(caplog.records) > 1:
                seen.set()

    row_jobs.logger.addHandler(watch := Seen())
    try:
        with worker(device, waits):
            assert len(numbers_of(run())) == 40
    finally:
        row_jobs.logger.removeHandler(watch)

    lines = [logged.getMessage() for logged in caplog.records if logged.name == "wmp.rows"]
    assert re.search(r"partition 3 .*no job of role 'default' ended for .* running jobs", lines[0])


@pytest.mark.rule("ROWS-2.5")
def test_with_a_store_a_second_try_runs_no_handler_again(device, run, tmp_path):
    calls = []

    def counts(batch):
        calls.append(batch["n"][0].as_py())
        return square(batch)

    with worker(device, counts):
        store = str(tmp_path / "store")
        first = sorted(numbers_of(run(store=store)))
        close_managers()  # the second try is in another process
        again = sorted(numbers_of(run(store=store)))
        other = sorted(numbers_of(run(store=store, partition=rows.TablePartition("query", 8, 3))))
        close_managers()

    assert first == again == other == list(range(40))
    assert len(calls) == 16


@pytest.mark.rule("ROWS-2.4", "ROWS-4.2")
@pytest.mark.parametrize("stored", [False, True])
def test_the_end_of_one_copy_of_a_task_leaves_the_other_its_results(device, tmp_path, stored):
    go, calls = threading.Event(), []

    def waits(batch):
        calls.append(batch["n"][0].as_py())
        assert go.wait(WAIT)
        return square(batch)

    def ends_before_its_results(batches):
        yield from batches
        raise InterruptedError("Spark ends this copy")

    terms = terms_of(device, store=str(tmp_path / "store") if stored else None)
    options = {"connect": terms.through, "codec": "arrow", "store": terms.store}
    with (
        wmp.Manager(**options) as manager,
        wmp.Manager(**options) as two,
        worker(device, waits, slots=2),
    ):
        # With a store the copies are in two processes, and otherwise in one.
        other = two if stored else manager
        copy = rows.run_rows(manager, ends_before_its_results(table(4)), SCHEMA, terms, PARTITION)
        results = rows.run_rows(other, ended_copy(copy, table(4)), SCHEMA, terms, PARTITION)
        threading.Timer(0.0, lambda: wait_until(lambda: calls, "a call") or go.set()).start()

        assert sorted(numbers_of(results)) == list(range(40))
        assert len(set(calls)) == 8
        assert not stored or len(calls) == 8


def ended_copy(copy, batches):
    """Yield batches, and then let another copy of the task begin its jobs and end."""
    yield from batches
    with pytest.raises(InterruptedError):
        next(copy)


@pytest.mark.rule("ROWS-4.7")
def test_a_process_has_one_manager_a_connection_and_replaces_one_that_ended(device, run):
    terms = terms_of(device)

    first = process_manager(terms)
    assert process_manager(terms_of(device, role="other", rows_per_job=9)) is first
    assert process_manager(terms_of(device, needs={"gpu": 1})) is first
    first.close()
    second = process_manager(terms)

    assert second is not first
    with pytest.raises(ClosedError):
        first.submit(b"")
    with worker(device, square):
        assert len(numbers_of(run())) == 40


def test_a_row_above_the_limit_of_payloads_fails_alone(device, run, monkeypatch):
    monkeypatch.setattr(process_manager(terms_of(device))._inner.intake, "payload_limit", 2000)
    text = pyarrow.schema([("n", pyarrow.int64())])
    big = pyarrow.record_batch({"n": [1, 2], "text": ["x", "y" * 3000]})

    with worker(device, lambda batch: {"n": batch["n"]}):
        results = run([big], schema=text, errors="column", rows_per_job=1, ordered=True)
        result_rows = [row for batch in results for row in batch.to_pylist()]

    assert [row["n"] for row in result_rows] == [1, 2]
    assert result_rows[0]["error"] is None
    assert "row 1 of partition 3" in result_rows[1]["error"]


def test_without_a_result_schema_nothing_is_yielded_but_errors_are_raised(device, run):
    def fails(batch):
        if batch["n"][0].as_py() == 35:
            raise ValueError("last")

    with worker(device, fails):
        assert list(run(3, schema=None)) == []
        with pytest.raises(RowsFailed, match=r"rows 35 to 39 .* ValueError: last"):
            list(run(4, schema=None))
