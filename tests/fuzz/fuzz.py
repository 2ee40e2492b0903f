"""Damaged models, of which each is compiled or refused: ``python tests/fuzz/fuzz.py --minutes 10 --seed 1``.

A traceback, a crash, more than ten seconds or more than two gigabytes is a failure: the file is written into the
folder given by ``--output``, with the reason beside it.
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import onnx
import seeds
from mutate import damage_bytes, damage_model
from worker import Outcome, Worker

_ROOT = Path(__file__).parents[2]

#: Between two lines of progress.
_SECONDS = 10


class Fuzz:
    """What was seen."""

    def __init__(self, sources: list[Path], seed: int, output: Path):
        self.seed = seed
        self.output = output
        self.counts = Counter()
        self.refusals = Counter()
        self.slowest = (0.0, "")
        self._sources = [(path.stem, path.read_bytes()) for path in sources]
        self._lock = Lock()
        self._start = time.monotonic()
        self._next = self._start + _SECONDS

    def work(self, index: int, count: int, stop: float, folder: Path) -> None:
        """Damage and compile the files ``index``, ``index + count``, … until the time ``stop``."""
        with Worker() as worker:
            while time.monotonic() < stop:
                name, data = self._file(index)
                path = folder / f"{name}.onnx"
                path.write_bytes(data)
                self._note(name, data, worker.run(path), path)
                path.unlink()
                index += count

    def _file(self, index: int) -> tuple[str, bytes]:
        """A damaged file; the same one for the same seed and index."""
        rng = random.Random(f"{self.seed}/{index}")
        # Small models are many, and quick.
        weights = [1 / len(data) for _, data in self._sources]
        (name, data), (_, other) = rng.choices(self._sources, weights, k=2)
        if rng.randrange(4) == 0:
            return f"{name}-{self.seed}-{index}", damage_bytes(data, other, rng)
        model = damage_model(onnx.load_from_string(data), rng)
        return f"{name}-{self.seed}-{index}", model.SerializeToString()

    def _note(self, name: str, data: bytes, outcome: Outcome, path: Path) -> None:
        with self._lock:
            self.counts[outcome.kind] += 1
            self.slowest = max(self.slowest, (outcome.seconds, name))
            if outcome.kind == "refused":
                self.refusals[_kind(outcome.text.replace(str(path), "FILE"))] += 1
            if outcome.kind == "failed":
                self.output.mkdir(parents=True, exist_ok=True)
                (self.output / path.name).write_bytes(data)
                (self.output / f"{name}.txt").write_text(outcome.text)
                print(f"{name}: {outcome.text.strip().splitlines()[-1]}", flush=True)
            if time.monotonic() > self._next:
                self._next = time.monotonic() + _SECONDS
                print(f"{time.monotonic() - self._start:.0f} s: {self._line()}", flush=True)

    def _line(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))

    def report(self) -> None:
        """Print what was seen."""
        print(f"{self.counts.total()} files: {self._line()}")
        print(f"{len(self.refusals)} distinct refusals")
        print(f"slowest: {self.slowest[0]:.1f} s ({self.slowest[1]})")
        print(f"failures: {self.counts['failed']}" + (f", in {self.output}" if self.counts["failed"] else ""))


def _kind(text: str) -> str:
    """A refusal without what differs from file to file: names and numbers."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "NAME", text)
    return re.sub(r"-?(\d[\d.e+-]*|inf|nan)", "0", text)[:160]


def main() -> int:
    """Run the command; 1 if a file was neither compiled nor refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL",
                        help="models to damage; those of the repository if none is given")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("build/fuzz"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = args.models
        if not sources:
            sources = [_ROOT / "examples/digits/model.onnx", *sorted((_ROOT / "tests/models").glob("*.onnx"))]
            for stem, model in seeds.models():
                sources.append(folder / f"{stem}.onnx")
                onnx.save(model, sources[-1])
        fuzz = Fuzz(sources, args.seed, args.output)
        stop = time.monotonic() + 60 * args.minutes
        with ThreadPoolExecutor(args.workers) as pool:
            for done in [pool.submit(fuzz.work, k, args.workers, stop, folder) for k in range(args.workers)]:
                done.result()
    fuzz.report()
    return 1 if fuzz.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
