"""The command `almac`: arguments in, one paragraph or one JSON object out."""

import contextlib
import json as json_
import sys

import typer
from rich.console import Console

from almac.boards.targets import TargetError
from almac.cli.inputs import InputFileError
from almac.compiler.graph import CompileError
from almac.compiler.program import ProgramError
from almac.host.errors import HostError
from almac.sim.verilated import SimulatorError

__all__ = ["app", "console", "emit_json", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="ONNX networks on FPGAs: ternary weights, 8-bit activations.")

#: Everything but results.
console = Console(stderr=True, highlight=False, soft_wrap=True)

#: A user's mistakes, and what the world does to us: one paragraph, no traceback.
_EXPECTED = (CompileError, HostError, InputFileError, ProgramError, SimulatorError, TargetError)


def emit_json(data):
    """Print one JSON object on stdout."""
    json_.dump(data, sys.stdout, indent=2)
    sys.stdout.write("\n")


def main():
    """Entry point of the command."""
    from almac.cli import commands  # noqa: F401 - registers the commands

    try:
        app()
    except _EXPECTED as error:
        console.print(f"almac: {error}", style="red", markup=False)
        sys.exit(1)
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
