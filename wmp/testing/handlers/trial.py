"""``@simulate``: one test, played in many simulated worlds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, overload

from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_count
from wmp.testing.handlers.simulated import SimulatedWorld, parse_faults
from wmp.testing.simulator.faults import Fault

SEEDS: Final = 50
"""Number of worlds for a test that names no other number."""

ARGUMENT: Final = "world"
"""The parameter of a test that receives the world."""

FIXTURE: Final = "wmp_world"
"""The name of the fixture behind that parameter."""


@frozen
class Trial:
    """The worlds of a test."""

    seeds: Sequence[int] = range(SEEDS)
    faults: frozenset[Fault] = field(factory=lambda: frozenset(Fault))
    codec: str = "bytes"

    def world(self, seed: int, *, trace: bool = False) -> SimulatedWorld:
        """Make the world of a seed. Seed 0 has no faults and shows errors of the test itself."""
        faults = self.faults if seed else ()
        return SimulatedWorld(seed, faults, codec=self.codec, trace=trace)


@overload
def simulate(test: Callable[..., None], /) -> Callable[..., None]: ...


@overload
def simulate(
    *,
    seeds: int | Iterable[int] = SEEDS,
    faults: Iterable[str | Fault] | str | None = None,
    codec: str = "bytes",
) -> Callable[[Callable[..., None]], Callable[..., None]]: ...


def simulate(
    test: Callable[..., None] | None = None,
    /,
    *,
    seeds: int | Iterable[int] = SEEDS,
    faults: Iterable[str | Fault] | str | None = None,
    codec: str = "bytes",
) -> Any:
    """Play a test in many simulated worlds, with faults: do its handlers survive them?

    ::

        @wmp.testing.simulate(seeds=100, faults=["kill", "drop"])
        def test_each_order_is_paid_once(world):
            paid = Counter()
            world.worker(lambda order: paid.update([order]), count=2)
            world.map([b"order-1", b"order-2"])
            world.run()
            assert set(paid.values()) == {1}

    Under pytest each seed is a test of its own, with fixtures of its own. After the first
    failure the remaining seeds are skipped. ``pytest --wmp-seed N`` plays one world alone, and
    ``--wmp-trace`` shows every message of it. Called without pytest, the test plays its worlds one
    after the other, and raises the first error with a note.

    The world of seed 0 has no faults.

    Args:
        test: Has a parameter ``world``, a :class:`~wmp.testing.handlers.simulated.SimulatedWorld`.
        seeds: The number of worlds, or the seeds themselves. faults: The possible faults: names
        (:class:`wmp.testing.simulator.faults.Fault`), or single words of
            them (``"kill"``). All by default.
        codec: The codec of payloads and results: ``"bytes"`` or ``"cbor"``.

    Raises:
        ConfigError: An argument is wrong.
    """
    if isinstance(seeds, Iterable):
        chosen: Sequence[int] = [check_count("a seed", seed) for seed in seeds]
    else:
        chosen = range(check_count("seeds", seeds, 1))
    if not chosen:
        raise ConfigError("seeds is empty; give one seed or more")
    trial = Trial(chosen, parse_faults(faults), codec)
    trial.world(0)  # raises ConfigError for wrong arguments

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return _played(test, trial)

    return decorate if test is None else decorate(test)


def _played(test: Callable[..., None], trial: Trial) -> Callable[..., None]:
    signature = inspect.signature(test)
    name = getattr(test, "__name__", repr(test))
    if ARGUMENT not in signature.parameters:
        raise ConfigError(
            f"{name}{signature} has no parameter {ARGUMENT!r}, which simulate needs; expected def "
            f"{name}({ARGUMENT})"
        )
    if inspect.iscoroutinefunction(test) or inspect.isgeneratorfunction(test):
        raise ConfigError(
            f"{name} is not a plain `def`, which simulate needs; only its handlers may be async"
        )

    @functools.wraps(test)
    def play(*arguments: Any, **named: Any) -> None:
        if FIXTURE in named:
            test(*arguments, **{ARGUMENT: named.pop(FIXTURE)}, **named)
            return
        for seed in trial.seeds:
            world = trial.world(seed)
            try:
                test(*arguments, **{ARGUMENT: world}, **named)
            except Exception as error:
                error.add_note(f"seed {seed} of {name}: {world.account(error)}")
                raise

    # The signature for pytest: the world is a fixture, under a unique name.
    play.__signature__ = signature.replace(parameters=_parameters(signature))  # type: ignore[attr-defined]
    play.wmp_trial = trial  # type: ignore[attr-defined]
    return play


def _parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters for pytest. The world comes last, because it is passed only by name."""
    others = [p for p in signature.parameters.values() if p.name != ARGUMENT]
    world = inspect.Parameter(FIXTURE, inspect.Parameter.KEYWORD_ONLY)
    return [
        *(p for p in others if p.kind is not p.VAR_KEYWORD),
        world,
        *(p for p in others if p.kind is p.VAR_KEYWORD),
    ]
