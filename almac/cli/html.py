"""A report as a page that needs nothing else."""

from html import escape

__all__ = ["page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: right }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left }
tr + tr { border-top: 1px solid #ddd } .bar { fill: #3b6ea5 } .used { fill: #d98c3f }
"""

_WIDTH, _ROW = 900, 22


def page(summary):
    """HTML of a report: a table, and each layer's share of the cycles and of the array."""
    rows = "".join(
        f"<tr><td>{escape(layer['name'])}</td><td>{escape(layer['kind'])}</td><td>{layer['macs']:,}</td>"
        f"<td>{layer['cycles']:,}</td><td>{layer['utilisation']:.3f}</td></tr>"
        for layer in summary["layers"])
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<title>almac: {escape(summary['target'])}</title><style>{_STYLE}</style>
<h1>{escape(summary['target'])}</h1>
<p>{summary['cycles']:,} cycles per run (predicted), utilisation {summary['utilisation']:.3f},
{summary['macs']:,} multiply-accumulates.</p>
{_timeline(summary)}
<p>Width: share of the cycles. Filled: share of the array that does useful work in them.</p>
<table><tr><th>layer</th><th>kind</th><th>MACs</th><th>cycles</th><th>utilisation</th></tr>{rows}</table>
</html>
"""


def _timeline(summary):
    total = max(summary["cycles"], 1)
    x, parts = 0.0, []
    for row, layer in enumerate(summary["layers"]):
        width = _WIDTH * layer["cycles"] / total
        y = row * _ROW
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="16" opacity=".3"/>'
            f'<rect class="used" x="{x:.1f}" y="{y + 16 - 16 * layer["utilisation"]:.1f}" '
            f'width="{max(width, 1):.1f}" height="{16 * layer["utilisation"]:.1f}"/>'
            f'<text x="{min(x + width + 4, _WIDTH)}" y="{y + 13}">{escape(layer["name"])}</text>')
        x += width
    height = _ROW * len(summary["layers"])
    return f'<svg viewBox="0 0 {_WIDTH + 90} {height}" width="100%">{"".join(parts)}</svg>'
