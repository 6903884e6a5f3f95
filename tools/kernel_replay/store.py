"""A replay on disk: what was chosen and generated for every kernel, as text.

FOLDER/index.jsonl          a line per kernel: target, model, name, and a digest of each text
FOLDER/texts/DIGEST.txt.gz  the texts, equal ones once
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from whet.core.digest import digest_text
from whet.runtime.files import atomic_write

PARTS = ("task", "candidate", "program", "llvm")
"""What is kept of a kernel, in the order in which each follows from the one before."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a model, and the digests of its texts by part."""

    target: str
    model: str
    name: str
    """The first call that uses it."""
    calls: int
    parts: Mapping[str, str]

    @property
    def place(self) -> tuple[str, str, str]:
        return self.target, self.model, self.name


class Replay:
    """A folder with an index and texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, text: str) -> str:
        """Stores a text; returns its digest."""
        digest = digest_text(text)[:24]
        path = self._path(digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:  # several processes may store the same text
                file.write(gzip.compress(text.encode(), mtime=0))
        return digest

    def text(self, digest: str) -> str:
        return gzip.decompress(self._path(digest).read_bytes()).decode()

    def write(self, kernels: Sequence[Kernel]) -> None:
        """Stores the index; texts of an earlier one that it does not name go."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(kernel)) for kernel in kernels]
        (self.folder / "index.jsonl").write_text("\n".join(lines) + "\n")
        used = {self._path(digest) for kernel in kernels for digest in kernel.parts.values()}
        for path in set(self._path("").parent.glob("*")) - used:
            path.unlink()

    def read(self) -> list[Kernel]:
        lines = (self.folder / "index.jsonl").read_text().splitlines()
        return [Kernel(**json.loads(line)) for line in lines]

    def _path(self, digest: str) -> Path:
        return self.folder / "texts" / f"{digest}.txt.gz"
