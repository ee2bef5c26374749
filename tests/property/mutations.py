"""The golden messages, and changes to them: changed bytes, changed frames, and parts of one
message in another.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

__all__ = ["Frames", "mutated", "vectors"]

VECTORS: Final = Path(__file__).parents[2] / "specs" / "vectors"
EDGES: Final = (
    b"\x00",
    b"\xff",
    b"\x1b" + b"\xff" * 8,
    b"\x18",
    b"\x9f",
    b"\xf6",
    b"\xc0",
    b"\x5f",
)

Frames = list[bytes]


def vectors() -> list[Frames]:
    """Return all messages of the vectors, valid and invalid."""
    messages: list[Frames] = []
    for path in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(path.read_text(encoding="utf-8")):
            for step in vector.get("steps", [vector]):
                frames = [bytes.fromhex(frame) for frame in step.get("frames", ())]
                if sum(map(len, frames)) < 4096:
                    messages.append(frames)
    return messages


def mutated(draw: random.Random, known: list[Frames]) -> Frames:
    """Draw one of the messages, with changes in one to three places."""
    frames = list(draw.choice(known))
    for _ in range(draw.randint(1, 3)):
        index = draw.randrange(len(frames)) if frames else 0
        match draw.randrange(6):
            case 0:
                frames.insert(index, draw.choice(draw.choice(known) or [b""]))
            case 1 if len(frames) > 1:
                del frames[index]
            case 2 if frames:
                other = draw.choice(draw.choice(known) or [b""])
                cut = draw.randrange(len(frames[index]) + 1)
                frames[index] = frames[index][:cut] + other[draw.randrange(len(other) + 1) :]
            case _ if frames and frames[index]:
                at = draw.randrange(len(frames[index]))
                new = draw.choice((*EDGES, draw.randbytes(1), draw.randbytes(1), b""))
                frames[index] = frames[index][:at] + new + frames[index][at + 1 :]
    return frames
