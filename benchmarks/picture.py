"""Pictures for the documentation, drawn from what was measured: plain SVG that is read on light and on dark pages."""

from __future__ import annotations

from collections.abc import Mapping

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 300, 56, 24, 52


def aging_svg(waits: Mapping[int, int]) -> str:
    """ms waited by priority, as bars."""
    most = 10  # minutes
    across, down = _WIDTH - _LEFT - 16, _HEIGHT - _TOP - _BOTTOM
    style = 'role="img" font-family="sans-serif" font-size="12" fill="#808080" stroke="none"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {style}>',
        "<title>How long a task waits behind an endless stream of priority 10, by its own priority</title>",
    ]
    for minutes in range(0, most + 1, 2):
        y = _TOP + down * (1 - minutes / most)
        lines.append(f'<path d="M{_LEFT} {y:.1f}h{across}" stroke="#808080" stroke-opacity="0.25"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{minutes} min</text>')
    slot = across / len(waits)
    for number, (priority, ms) in enumerate(sorted(waits.items())):
        height = down * ms / 60_000 / most
        x, y = _LEFT + slot * number + slot * 0.2, _TOP + down - height
        lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{slot * 0.6:.1f}" height="{height:.1f}" fill="#3f7fbf"/>')
        label = f"{ms / 60_000:g}"
        lines.append(f'<text x="{x + slot * 0.3:.1f}" y="{y - 5:.1f}" text-anchor="middle">{label}</text>')
        lines.append(f'<text x="{x + slot * 0.3:.1f}" y="{_TOP + down + 18}" text-anchor="middle">{priority}</text>')
    lines.append(f'<text x="{_LEFT + across / 2}" y="{_HEIGHT - 12}" text-anchor="middle">priority of the task</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
