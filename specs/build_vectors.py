"""Write ``vectors/*.json``: messages as bytes, and their meaning for a receiver.

::

    python specs/build_vectors.py            # write the files
    python specs/build_vectors.py --check    # exit 1 when one is stale

The files are never edited by hand. ``vectors/README.md`` explains their format. The bytes of valid
messages (``valid_messages.py``) come from the codec. The bytes of invalid messages are put together
item by item (``invalid_messages.py``), because the codec does not make them. The conversations are
those of the conformance kit with this project's machines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conversations import conversations
from invalid_messages import invalid, tolerated
from valid_messages import valid
from value_payloads import value_payloads

from wmp.codec import decode, encode
from wmp.codec.message_tables import COLUMN_ATTRIBUTES, COLUMN_NAMES
from wmp.conformance.script.case import Case
from wmp.conformance.script.transcript import TranscriptLine
from wmp.errors import DecodeError
from wmp.message import FIELD_NAMES, Frame, Message

VECTORS = Path(__file__).resolve().parent / "vectors"


def readable(value: Any) -> Any:
    """Return a value for JSON: bytes become ``{"hex": …}``, maps ``{"map": [[key, value], …]}``."""
    match value:
        case bytes() | memoryview():
            return {"hex": bytes(value).hex()}
        case dict():
            return {"map": [[readable(key), readable(entry)] for key, entry in value.items()]}
        case list() | tuple():
            return [readable(entry) for entry in value]
    return value


def readable_message(message: Message) -> dict[str, Any]:
    """Return a message for JSON, by the names of the specification."""
    named: dict[str, Any] = {
        "command": message.command.name,
        "to": readable(message.to),
        "from": readable(message.source),
        "fields": [
            [FIELD_NAMES.get(key, key), readable(value)] for key, value in message.fields.items()
        ],
    }
    if message.columns is not None:
        named["columns"] = {
            name: readable(list(column))
            for key, name in COLUMN_NAMES.items()
            if (column := getattr(message.columns, COLUMN_ATTRIBUTES[key])) is not None
        }
    return named


def hexes(frames: Sequence[Frame]) -> list[str]:
    """Return frames for JSON."""
    return [bytes(frame).hex() for frame in frames]


def files() -> dict[str, list[dict[str, Any]]]:
    """Return the content of every file."""
    taken = []
    for name, message in valid():
        frames = encode(message)
        # Encoded and decoded, so that the file has what a receiver gets.
        seen = readable_message(decode(frames))
        taken.append({"name": name, "frames": hexes(frames), "valid": True, "message": seen})
    refused = []
    for name, parts, code, why in invalid():
        entry: dict[str, Any] = {"name": name, "frames": hexes(parts), "valid": False}
        entry |= {"error": code, "why": why, "from": [], "command": None}
        try:
            decode(parts)
        except DecodeError as error:
            entry |= {"from": readable(error.source), "command": error.command}
        refused.append(entry)
    odd = []
    for name, parts, why in tolerated():
        seen = readable_message(decode(parts))
        odd.append(
            {"name": name, "frames": hexes(parts), "valid": True, "why": why, "message": seen}
        )
    return {
        "valid.json": taken,
        "invalid.json": refused,
        "tolerated.json": odd,
        "conversations.json": [spoken(*conversation) for conversation in conversations()],
        "values.json": value_payloads(),
    }


def spoken(case: Case, lines: Sequence[TranscriptLine]) -> dict[str, Any]:
    """Return a conversation for JSON: sender, receiver, message and time of each step."""
    steps: list[dict[str, Any]] = []
    for line in lines:
        step: dict[str, Any] = {"at": round(line.at, 3)}
        if line.message is None:
            steps.append({**step, "note": line.text})
            continue
        by, to = ([line.who], [case.testee])[:: 1 if line.way == ">" else -1]
        step |= {"by": " ".join(by), "to": " ".join(to), "frames": hexes(line.frames)}
        steps.append({**step, "message": readable_message(line.message)})
    return {
        "name": case.id,
        "about": case.about,
        "rules": list(case.rules),
        "peer": case.testee,
        "steps": steps,
    }


def render(vectors: Sequence[dict[str, Any]]) -> str:
    """Return the text of a file: one vector on a line, so that a diff shows changed vectors."""
    lines = []
    for vector in vectors:
        steps = vector.get("steps")
        text = json.dumps({**vector, "steps": []} if steps else vector, ensure_ascii=False)
        if steps:  # a conversation has one step on a line
            written = ",\n  ".join(json.dumps(step, ensure_ascii=False) for step in steps)
            text = f"{text.removesuffix('[]}')}[\n  {written}\n]}}"
        lines.append(text)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or report stale ones."""
    parser = argparse.ArgumentParser(description="write specs/vectors/*.json")
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    check = parser.parse_args(arguments).check
    stale = 0
    for name, vectors in files().items():
        path, text = VECTORS / name, render(vectors)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"{path} is stale: run python specs/build_vectors.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}: {len(vectors)} vectors")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
