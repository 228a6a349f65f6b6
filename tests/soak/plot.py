"""The plot of a soak run, as plain SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Samples = Sequence[tuple[float, float]]
_STYLE = 'role="img" font-family="sans-serif" font-size="11" fill="#808080" stroke="none"'
_WIDTH = 310
_HEIGHT = 140
_GAP = 10
_COLOURS = {"sqlite": "#3f7fbf", "redis": "#bf5f3f", "postgres": "#3f9f5f"}
_UNITS = {"memory": "MB", "wal": "MB"}


def soak_svg(runs: Mapping[str, Mapping[str, Samples]]) -> str:
    """One panel per figure, one line per store. runs: store → figure → (seconds, value)."""
    figures = sorted({name for series in runs.values() for name in series})
    rows = -(-len(figures) // 2)
    height = 24 + rows * (_HEIGHT + _GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH + _GAP} {height}" {_STYLE}>',
        "<title>Figures of a soak run over time, by store</title>",
    ]
    for number, store in enumerate(runs):
        lines.append(f'<text x="{8 + 90 * number}" y="14" fill="{_COLOURS[store]}">{store}</text>')
    for number, figure in enumerate(figures):
        x = (number % 2) * (_WIDTH + _GAP)
        y = 24 + (number // 2) * (_HEIGHT + _GAP)
        panel = {store: series[figure] for store, series in runs.items() if figure in series}
        lines += _panel(x, y, figure, panel)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(x: float, y: float, figure: str, panel: Mapping[str, Samples]) -> list[str]:
    most = max(value for samples in panel.values() for _, value in samples) or 1
    last = max(at for samples in panel.values() for at, _ in samples) or 1
    top = y + 18
    down = _HEIGHT - 36
    across = _WIDTH - 16
    unit = _UNITS.get(figure.split(maxsplit=1)[0], "")
    lines = [
        f'<text x="{x + 8}" y="{y + 11}">{figure}, at most {most:,.0f} {unit}</text>',
        f'<path d="M{x + 8} {top + down}h{across}M{x + 8} {top}h{across}" stroke="#808080" stroke-opacity="0.3"/>',
        f'<text x="{x + 8 + across}" y="{top + down + 13}" text-anchor="end">{last / 60:,.0f} min</text>',
    ]
    for store, samples in panel.items():
        points = " ".join(
            f"{x + 8 + across * at / last:.1f},{top + down * (1 - value / most):.1f}" for at, value in thinned(samples)
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{_COLOURS[store]}"/>')
    return lines


def thinned(samples: Samples, most: int = 150) -> Samples:
    step = max(1, len(samples) // most)
    return samples[::step]
