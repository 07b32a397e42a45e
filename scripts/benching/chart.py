"""The ratios as one picture: a bar per row, and a mark where it was to reach."""

from __future__ import annotations

from pathlib import Path

from .measure import Row


def draw(rows: list[Row], to: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = list(reversed(rows))
    figure, axes = plt.subplots(figsize=(9, 0.34 * len(shown) + 1.2))
    colours = ["#8a8f98" if r.goal is None else "#2b8a5e" if r.ratio <= r.goal else "#c0643b"
               for r in shown]
    places = range(len(shown))
    axes.barh(places, [row.ratio for row in shown], color=colours, height=0.6)
    for place, row in zip(places, shown, strict=True):
        if row.goal is not None:
            axes.plot([row.goal, row.goal], [place - 0.42, place + 0.42], color="black", linewidth=1.2)
        axes.text(row.ratio + 0.02, place, f"{row.ratio:.2f}", va="center", fontsize=7)
    axes.set_yticks(list(places), [f"{row.name}  (of {row.against})" for row in shown], fontsize=7)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("ours / theirs: shorter is better; a black mark is the ratio to reach")
    figure.tight_layout()
    figure.savefig(to, dpi=130)
