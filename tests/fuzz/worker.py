"""Files compiled one after the other in a process of their own, which may run out of memory, hang or die.

As a command it reads paths, one a line, and answers each with a line of JSON.
"""

import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIMIT_BYTES", "LIMIT_SECONDS", "Outcome", "Worker"]

#: Address space of a worker; that of the interpreter and its libraries is about a quarter of it.
LIMIT_BYTES = 2 << 30

LIMIT_SECONDS = 10.0

#: Refused for want of memory is not refused in bounded memory.
_HUNGRY = re.compile(r"bad_alloc|allocate|MemoryError|out of memory", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a file.

    Attributes
    ----------
    kind : str
        ``compiled``, ``refused``, or ``failed``.
    text : str
        The message of a refusal, or what went wrong.
    """

    kind: str
    text: str
    seconds: float


class Worker:
    """A process that compiles files; started again whenever it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, path: Path) -> Outcome:
        """Compile one file."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)
            # Importing is not the file's fault: the worker says when it is ready.
            self._process.stdout.readline()
        process, start = self._process, time.monotonic()
        # One that has died meanwhile answers with nothing.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], LIMIT_SECONDS)
        line = process.stdout.readline() if ready else ""
        seconds = time.monotonic() - start
        if line:
            return Outcome(**json.loads(line), seconds=seconds)
        self.stop()
        code = process.returncode
        text = f"took more than {LIMIT_SECONDS:.0f} s" if not ready else (
            f"the process died of {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}")
        return Outcome(kind="failed", text=text, seconds=seconds)

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _serve() -> None:
    # Imported here: the other side needs none of it.
    from almac.compiler.build import build
    from almac.compiler.graph import CompileError
    from almac.hdl.config import ArrayConfig

    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    # What libraries print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        kind, text = "compiled", ""
        try:
            build(line.rstrip("\n"), ArrayConfig())
        except CompileError as error:
            kind, text = "refused", str(error)
            if _HUNGRY.search(text):
                kind, text = "failed", f"refused for want of memory: {text}"
        except Exception:
            kind, text = "failed", traceback.format_exc()
        print(json.dumps({"kind": kind, "text": text}), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
