"""A plot of the ratios, as SVG."""

from html import escape

ROW, LEFT, WIDTH = 22, 330, 360  # pixels


def plot(found: list[tuple[str, str, float, float, float, str]]) -> str:
    """Return a bar for each ratio, with a line where a render equals its floor."""
    bars = [(f"{figure}: {name}", float(r.split()[0]), r) for figure, name, *_, r in found if r]
    most = max([1.5, *(ratio for _, ratio, _ in bars)])
    height, one = ROW * (len(bars) + 1), LEFT + WIDTH / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 200} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="100%" height="{height}" fill="#fff"/>',
    ]
    for number, (label, ratio, text) in enumerate(bars):
        y, size = ROW * number + 6, WIDTH * ratio / most
        colour = "#2f7d5b" if ratio <= 1 else "#b8792b"
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{size:.0f}" height="16" fill="{colour}"/>',
            f'<text x="{LEFT + size + 6:.0f}" y="{y + 13}" fill="#555">{escape(text)}</text>',
        ]
    line = f'<line x1="{one:.0f}" x2="{one:.0f}" y1="0" y2="{height}" stroke="#999"/>'
    return "\n".join([*parts, line, "</svg>"]) + "\n"
