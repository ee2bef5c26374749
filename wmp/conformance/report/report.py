"""The result of a run of the kit, as a value and as JSON (``specs/conformance.md``)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from wmp.conformance.script.case import CaseResult, Verdict
from wmp.conformance.script.rules import RULES, UNTESTABLE
from wmp.conformance.script.transcript import ReportedFrame, ReportedLine, TranscriptLine
from wmp.errors import ConfigError
from wmp.message import counted

FORMAT: Final = "wmp-conformance"
VERSION: Final = 1
"""Version of the JSON form. It grows when an older reader would misread the newer form."""

BAD: Final = frozenset({Verdict.FAILED, Verdict.UNCLEAN})
"""Verdicts on a testee that does not conform; NON-STRICT is added when strict."""

_SHOWN: Final = 512
"""Bytes of a frame that a report keeps."""
_WEIGHT: Final = (
    Verdict.UNIMPLEMENTED,
    Verdict.VOID,
    Verdict.OK,
    Verdict.INFORMATIONAL,
    Verdict.NON_STRICT,
    Verdict.UNCLEAN,
    Verdict.FAILED,
)
"""Verdicts by weight. If a rule has several verdicts, the last of them in this list counts."""


@frozen
class ReportEntry:
    """The result of one case."""

    case: str
    about: str
    rules: tuple[str, ...]
    profile: str
    verdict: Verdict
    breaks: tuple[str, ...] = ()
    """The rules that do not hold."""
    text: str = ""
    seconds: float = 0.0
    seed: int | None = None
    moves: Sequence[Sequence[Any]] = ()
    """The moves of a drawn conversation; empty for a script."""
    lines: Sequence[ReportedLine] = ()
    """The conversation; empty for a case that simply passed."""
    stderr: str = ""
    """The end of the testee's stderr."""

    @property
    def unwell(self) -> bool:
        """Whether the case found a fault, strict or not."""
        return bool(self.breaks) or self.verdict is Verdict.UNCLEAN

    @property
    def detailed(self) -> bool:
        """Whether the report shows the case in detail."""
        return self.unwell or bool(self.lines)

    @property
    def drawn(self) -> bool:
        """Whether this is the entry of the drawn conversations."""
        return self.case.endswith("/drawn")

    @property
    def begins(self) -> bool:
        """Whether this is the first step of every run, and not a case of its own."""
        return self.case.endswith("/begins")

    @property
    def replays(self) -> bool:
        """Whether ``--replay`` plays this entry of a report again."""
        undecided = self.unwell or self.verdict is Verdict.VOID
        return undecided and not self.begins and (not self.drawn or bool(self.moves))


@frozen
class ConformanceReport:
    """The results of one testee."""

    testee: str
    """manager, worker or device."""
    name: str
    """The name of the implementation."""
    command: str | None = None
    endpoint: str | None = None
    unit: int = 1000
    strict: bool = False
    seed: int = 0
    examples: int = 0
    profiles: tuple[str, ...] = ()
    began: str = ""
    """Start of the run, as ISO 8601."""
    seconds: float = 0.0
    kit: str = ""
    """Version of the kit."""
    whole: bool = True
    """Whether every case for this kind of testee was played."""
    entries: tuple[ReportEntry, ...] = field(default=())
    file: str | None = field(default=None, eq=False)
    """The file that holds the report as JSON."""

    @property
    def bad(self) -> tuple[ReportEntry, ...]:
        """The entries with which the testee does not conform."""
        bad = BAD | {Verdict.NON_STRICT} if self.strict else BAD
        return tuple(entry for entry in self.entries if entry.verdict in bad)

    @property
    def conforms(self) -> bool:
        """Whether no entry is bad. A broken SHOULD counts only in a strict report."""
        return not self.bad

    @property
    def outcome(self) -> str:
        """The result in words: ``conforms``, or the number of broken rules."""
        if not self.conforms:
            broken = {rule for entry in self.bad for rule in entry.breaks or entry.rules[:1]}
            return f"{counted(len(broken), 'rule')} broken"
        if not any(self.count(seen) for seen in (Verdict.OK, Verdict.INFORMATIONAL)):
            return "nothing tested"
        whole = self.whole and not self.count(Verdict.VOID)
        return "conforms" if whole else "conforms in part"

    def count(self, verdict: Verdict) -> int:
        """Return the number of cases with this verdict."""
        return sum(entry.verdict is verdict for entry in self.entries)

    def rules(self) -> dict[str, tuple[Verdict | None, str]]:
        """(verdict, case or reason) of every rule that binds this kind of testee.

        A verdict of None: the rule was not checked, for this reason.
        """
        verdicts: dict[str, tuple[Verdict | None, str]] = {}
        for rule in RULES.values():
            if rule.binds(self.testee):
                verdicts[rule.id] = None, UNTESTABLE.get((self.testee, rule.id), "not looked at")
        for entry in self.entries:
            for rule_id, verdict in _judged(entry):
                before = verdicts.get(rule_id, (None, ""))[0]
                if before is None or _WEIGHT.index(before) < _WEIGHT.index(verdict):
                    verdicts[rule_id] = verdict, entry.case
        return verdicts

    def replay(self, entry: ReportEntry) -> str:
        """Return the command that plays an entry again, from this report's file if there is one."""
        words = ["wmp-conformance", self.testee]
        if self.file is not None and entry.replays:
            return " ".join([*words, "--replay", shlex.quote(self.file), "--case", entry.case])
        for option, value in (("--command", self.command), ("--endpoint", self.endpoint)):
            if value is not None:
                words += [option, shlex.quote(value)]
        words += ["--unit", str(self.unit), *([] if entry.begins else ["--case", entry.case])]
        if entry.drawn:
            words += ["--seed", str(self.seed), "--examples", str(self.examples)]
        return " ".join([*words, *(["--strict"] if self.strict else [])])

    def dumps(self) -> str:
        """Return the report as JSON."""
        return json.dumps(_plain(self), indent=1, ensure_ascii=False) + "\n"


def _judged(entry: ReportEntry) -> Iterable[tuple[str, Verdict]]:
    """Return each (rule, verdict) that an entry shows."""
    if entry.breaks:
        # The case ended early, so it shows nothing about its other rules.
        return [(rule, entry.verdict) for rule in entry.breaks]
    if entry.verdict in (Verdict.UNCLEAN, Verdict.INFORMATIONAL):
        first, *others = entry.rules
        return [(first, entry.verdict), *((rule, Verdict.OK) for rule in others)]
    return [(rule, entry.verdict) for rule in entry.rules]


def entry_of(result: CaseResult, seconds: float) -> ReportEntry:
    """Return the part of a result that a report keeps."""
    case = result.case
    kept = () if result.verdict in (Verdict.OK, Verdict.UNIMPLEMENTED) else result.lines
    return ReportEntry(
        case=case.id,
        about=case.about.replace("``", "`"),
        rules=case.rules,
        profile=case.profile,
        verdict=result.verdict,
        breaks=result.breaks,
        text=result.text,
        seconds=round(seconds, 3),
        seed=result.seed,
        moves=tuple(map(tuple, result.script)) if result.verdict is not Verdict.OK else (),
        lines=tuple(map(_reported, kept)),
        stderr=result.stderr if kept else "",
    )


def _reported(line: TranscriptLine) -> ReportedLine:
    frames = tuple(ReportedFrame(len(frame), bytes(frame[:_SHOWN]).hex()) for frame in line.frames)
    return ReportedLine(round(line.at, 3), line.who, line.way, line.text, frames)


def _plain(report: ConformanceReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **{name: getattr(report, name) for name in _HEAD},
        "profiles": list(report.profiles),
        "conforms": report.conforms,
        "counts": {verdict.value: report.count(verdict) for verdict in Verdict},
        "rules": {
            rule: {"verdict": verdict.value if verdict else None, "by": by}
            for rule, (verdict, by) in report.rules().items()
        },
        "cases": [_plain_entry(entry) for entry in report.entries],
    }


_HEAD: Final = (
    "kit",
    "testee",
    "name",
    "command",
    "endpoint",
    "unit",
    "strict",
    "seed",
    "examples",
    "began",
    "seconds",
    "whole",
)


def _plain_entry(entry: ReportEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "case": entry.case,
        "about": entry.about,
        "rules": list(entry.rules),
        "profile": entry.profile,
        "verdict": entry.verdict.value,
        "seconds": entry.seconds,
    }
    if entry.text:
        plain["text"] = entry.text
    if entry.breaks:
        plain["breaks"] = list(entry.breaks)
    if entry.seed is not None:
        plain["seed"] = entry.seed
    if entry.moves:
        plain["moves"] = [list(move) for move in entry.moves]
    if entry.stderr:
        plain["stderr"] = entry.stderr
    if entry.lines:
        plain["conversation"] = [
            {
                "at": line.at,
                "who": line.who,
                "way": line.way,
                "text": line.text,
                "frames": [{"size": frame.size, "hex": frame.hex} for frame in line.frames],
            }
            for line in entry.lines
        ]
    return plain


def read(path: Path) -> ConformanceReport:
    """Read a report from a JSON file.

    Raises:
        ConfigError: There is no report in the file, or one of another version.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ConfigError(
            f"{path} is not a report of wmp-conformance; expected a file written by --json"
        )
    if plain.get("version") != VERSION:
        raise ConfigError(
            f"{path} is a report of version {plain.get('version')}; this kit reads {VERSION}"
        )
    try:
        head = ConformanceReport(**{name: plain[name] for name in _HEAD})
        return evolve(
            head,
            profiles=tuple(plain["profiles"]),
            file=str(path),
            entries=tuple(_read_entry(entry) for entry in plain["cases"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is an incomplete report: {type(error).__name__} {error}"
        ) from None


def _read_entry(plain: Mapping[str, Any]) -> ReportEntry:
    return ReportEntry(
        case=plain["case"],
        about=plain["about"],
        rules=tuple(plain["rules"]),
        profile=plain["profile"],
        verdict=Verdict(plain["verdict"]),
        breaks=tuple(plain.get("breaks", ())),
        text=plain.get("text", ""),
        seconds=plain["seconds"],
        seed=plain.get("seed"),
        moves=tuple(tuple(move) for move in plain.get("moves", ())),
        lines=tuple(
            ReportedLine(
                line["at"],
                line["who"],
                line["way"],
                line["text"],
                tuple(ReportedFrame(frame["size"], frame["hex"]) for frame in line["frames"]),
            )
            for line in plain.get("conversation", ())
        ),
        stderr=plain.get("stderr", ""),
    )
