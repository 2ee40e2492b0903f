"""Many random networks: ``python tests/networks/nightly.py --count 1000 --seed 1``.

The first failure is shrunk, and written as models and recipe into the folder given by ``--output``.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import onnx
from checking import check_network
from hypothesis import HealthCheck, Verbosity, given, seed, settings
from hypothesis import strategies as st
from recipe import Recipe
from strategies import recipes
from writers import SPELLINGS, supports, write

#: Between two lines of progress.
_SECONDS = 10


class Night:
    """What was seen, and the latest failure."""

    def __init__(self):
        self.counts = Counter()
        self.spellings = Counter()
        self.operators = Counter()
        self.failure: tuple[Recipe, int, str] | None = None
        self._next = time.monotonic() + _SECONDS

    def check(self, recipe, opset):
        """Check one network; a failure is kept and raised."""
        try:
            seen = check_network(recipe, opset)
        except Exception as error:
            self.failure = recipe, opset, f"{type(error).__name__}: {error}"
            raise
        self._note(recipe, opset, seen)

    def _note(self, recipe, opset, seen):
        self.counts.update(networks=1, layers=len(recipe.layers), elements=seen.elements,
                           near_ties=seen.near_ties, programs=seen.programs)
        self.spellings.update(seen.spellings)
        for spelling in seen.spellings:
            self.operators.update(node.op_type for node in write(recipe, spelling, opset).graph.node)
        if time.monotonic() > self._next:
            self._next = time.monotonic() + _SECONDS
            print(f"{self.counts['networks']} networks, {self.counts['elements']} elements", flush=True)

    def report(self):
        """Print what was seen."""
        print("".join(f"{name} {count}\n" for name, count in self.counts.items()), end="")
        print("spellings:", ", ".join(f"{name} {count}" for name, count in self.spellings.most_common()))
        print("operators:", ", ".join(f"{name} {count}" for name, count in self.operators.most_common()))
        print("differences:", self.failure[2] if self.failure else 0)

    def save(self, folder):
        """Write the latest failure: ``recipe.txt``, and its models."""
        recipe, opset, message = self.failure
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.txt").write_text(f"# opset {opset}: {message}\n{recipe!r}\n")
        for spelling in (spelling for spelling in SPELLINGS if supports(recipe, spelling)):
            onnx.save(write(recipe, spelling, opset), folder / f"{spelling}.onnx")


def main():
    """Run the command; returns 1 after a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="networks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("build/networks"), help="folder for a failure")
    options = parser.parse_args()
    night = Night()

    @seed(options.seed)
    @settings(max_examples=options.count, database=None, deadline=None, verbosity=Verbosity.quiet,
              suppress_health_check=[HealthCheck.too_slow])
    @given(recipes(), st.integers(13, 25))
    def check(recipe, opset):
        night.check(recipe, opset)

    try:
        check()
    except Exception as error:
        # What hypothesis itself refuses has no recipe.
        if night.failure is None:
            raise
        print(f"{type(error).__name__}: {error}")
        night.save(options.output)
        print(f"written to {options.output}")
    night.report()
    return 1 if night.failure else 0


if __name__ == "__main__":
    sys.exit(main())
