"""Settings of retries after errors: the errors that they cover, and the waits."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from wmp.errors import ConfigError, Reject, RetryLater
from wmp.retry import Backoff, Retry, exponential, names_of, spread_of
from wmp.runtime.executors.handlers import describe_failure


def test_a_handler_compares_classes_and_a_job_compares_names() -> None:
    retry = Retry(on=(OSError, "json.decoder.JSONDecodeError"))

    assert retry.suits(ConnectionRefusedError())
    assert not retry.suits(ValueError())
    assert retry.suits_names(names_of(ConnectionRefusedError()))
    assert not retry.suits_names(names_of(ValueError()))
    assert retry.suits_names(["json.decoder.JSONDecodeError", "builtins.ValueError"])


def test_an_error_of_python_needs_no_module() -> None:
    retry = Retry(on=("ConnectionError", "x.Y"))

    assert retry.names == {"builtins.ConnectionError", "x.Y"}
    assert retry.suits(ConnectionRefusedError())
    assert retry.suits_names(names_of(ConnectionRefusedError()))


def test_an_error_without_known_types_is_some_exception() -> None:
    assert Retry().suits_names(None)
    assert not Retry(on=OSError).suits_names(None)
    assert not Retry().suits_names([])


def test_waits_grow_up_to_their_bound() -> None:
    retry = Retry(backoff=exponential(1, 60), jitter=False)

    assert [retry.wait(n, 7) for n in (1, 2, 3, 6, 7, 100_000)] == [1, 2, 4, 32, 60, 60]
    assert Retry(backoff=5, jitter=False).wait(9, 7) == 5


def test_jitter_shortens_a_wait_by_up_to_a_half_and_is_the_same_again() -> None:
    retry = Retry(backoff=10)
    waits = [retry.wait(1, seed) for seed in range(1000)]

    assert 5 <= min(waits) < 5.1
    assert 9.9 < max(waits) <= 10
    assert abs(sum(waits) / 1000 - 7.5) < 0.2
    assert waits == [retry.wait(1, seed) for seed in range(1000)]
    assert retry.wait(1, 1) != retry.wait(2, 1)


def test_spread_is_in_its_bounds_for_any_numbers() -> None:
    assert all(0 <= spread_of(seed, n) < 1 for seed in (0, -1, 2**80) for n in range(50))


def test_settings_travel_between_processes() -> None:
    retry = Retry(times=2, on=(ConnectionError,), backoff=exponential(0.1, 2))

    assert pickle.loads(pickle.dumps(retry)) == retry
    assert pickle.loads(pickle.dumps(retry)).names == retry.names


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"times": -1}, "times is -1; expected a whole number from 0"),
        ({"times": True}, "times is True"),
        ({"on": ()}, "on= is empty; name classes of errors"),
        ({"on": (5,)}, "on contains 5; expected classes"),
        ({"on": int}, "expected classes of errors"),
        ({"on": "Timeout"}, r"'Timeout', which is not a built-in exception; .* with its module"),
        ({"on": ("print",)}, "'print', which is not a built-in exception"),
        ({"backoff": "slow"}, r"expected seconds or wmp.exponential\(first, most\)"),
        ({"backoff": -1}, "first of a backoff"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Retry(**settings)


def test_a_wrong_backoff_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"most of a backoff is .*; expected a number from 10"):
        Backoff(10, 5)
    with pytest.raises(ConfigError, match="factor"):
        exponential(1, 5, 0.5)


@pytest.mark.rule("WMP-6.25")
def test_a_handlers_settings_give_the_wait_as_often_as_they_allow() -> None:
    retry = Retry(times=2, on=OSError, backoff=exponential(1, 60), jitter=False)
    error = ConnectionError("refused\nby the host")

    text, wait = describe_failure(error, retry, 0, 7)
    assert text == (
        "ConnectionError: refused by the host\n"
        "builtins.ConnectionError builtins.OSError builtins.Exception builtins.BaseException"
    )
    assert wait == 1000
    assert describe_failure(error, retry, 1, 7)[1] == 2000
    assert describe_failure(error, retry, 2, 7)[1] is None
    assert describe_failure(ValueError(), retry, 0, 7)[1] is None
    assert describe_failure(error, None, 0, 7)[1] is None


@pytest.mark.rule("WMP-6.25")
def test_the_settings_of_a_job_override_those_of_its_handler() -> None:
    assert describe_failure(OSError(), Retry(), None, 7)[1] is None
    assert describe_failure(RetryLater(10), Retry(), None, 7)[1] == 10_000


def test_retry_later_is_bounded_by_the_handlers_settings_or_three() -> None:
    later = RetryLater(0.0004)

    assert [describe_failure(later, None, n, 7)[1] for n in (0, 2, 3)] == [1, 1, None]
    assert [describe_failure(later, Retry(times=1), n, 7)[1] for n in (0, 1)] == [1, None]


def test_a_rejected_job_has_an_empty_list_of_names() -> None:
    assert describe_failure(Reject("no such user"), Retry(), 0, 7) == (
        "Reject: no such user\n",
        None,
    )


def test_an_error_whose_text_fails_has_its_type() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    text, _ = describe_failure(Silent(), None, 0, 7)

    assert text.startswith("Silent\n")


@pytest.mark.parametrize("seconds", ["10", True, None])
def test_retry_later_takes_seconds(seconds: Any) -> None:
    with pytest.raises(TypeError, match="number of seconds"):
        RetryLater(seconds)
    with pytest.raises(ValueError, match="0 to 1e9"):
        RetryLater(-1)
