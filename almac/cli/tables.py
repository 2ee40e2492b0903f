"""Results for people."""

from rich.console import Console
from rich.table import Table

__all__ = ["print_report", "print_verification"]


def print_report(summary):
    """Layers, cycles, utilisation and memory of a program."""
    table = Table(title=f"target {summary['target']}, program {summary['program']}",
                  title_justify="left")
    for name, justify in (("layer", "left"), ("kind", "left"), ("commands", "right"), ("MACs", "right"),
                          ("cycles", "right"), ("utilisation", "right"), ("acc bits", "right")):
        table.add_column(name, justify=justify)
    for layer in summary["layers"]:
        table.add_row(layer["name"], layer["kind"], str(layer["commands"]), f"{layer['macs']:,}",
                      f"{layer['cycles']:,}", f"{layer['utilisation']:.3f}",
                      str(layer["acc_bits"] or ""))
    table.add_section()
    table.add_row("all", "", str(sum(layer["commands"] for layer in summary["layers"])),
                  f"{summary['macs']:,}", f"{summary['cycles']:,}", f"{summary['utilisation']:.3f}", "")
    console = Console(soft_wrap=True)
    console.print(table)
    link = summary["link"]
    console.print(f"cycles are predicted; input {link['input_bytes']} and result "
                  f"{link['output_bytes']} bytes per image; weights {link['weights']}")
    console.print("memory (words): " + ", ".join(
        f"{name} {used['used']} of {used['available']}"
        for name, used in summary["memory_words"].items()))
    for line in summary["host"]:
        console.print(f"on the host: {line}")


def print_verification(summary):
    """Whether all is equal; if not, where it begins to differ."""
    console = Console(highlight=False, soft_wrap=True)
    if difference := summary["first_difference"]:
        console.print(f"DIFFERENT ({difference.pop('stage')})")
        for name, value in difference.items():
            console.print(f"  {name}: {value}")
        return
    cycles = summary["cycles"]
    console.print(f"{'equal' if summary['equal'] else 'NOT EQUAL'} at level {summary['level']}: "
                  f"{summary['tensors']} tensors of {summary['images']} images; "
                  f"{summary['near_ties']} near-ties with onnxruntime")
    if cycles["simulated"] is not None:
        console.print(f"cycles: predicted {cycles['predicted']}, simulated {cycles['simulated']}")
        for layer in cycles["layers"]:
            console.print(f"  {layer['layer']:12} predicted {layer['predicted']:8} simulated "
                          f"{layer['simulated']:8}")
