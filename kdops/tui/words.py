"""Numbers as the dashboard writes them: short, aligned, honest about what is unknown. Pure."""

from __future__ import annotations

from kdops.text import duration

NONE = "-"
_BLOCKS = "▏▎▍▌▋▊▉█"


def number(value: float | None, digits: int = 1) -> str:
    """Return 237.5, 1,204, 12.3k; "-" for None."""
    if value is None:
        return NONE
    if abs(value) >= 100_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def whole(value: int | None) -> str:
    """Return the number, or "-"."""
    return NONE if value is None else str(value)


def milliseconds(seconds: float | None) -> str:
    """Return a step time with three figures."""
    if seconds is None:
        return NONE
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def percent(share: float | None) -> str:
    """Return 0.5 as 50 %."""
    return NONE if share is None else f"{share * 100:.0f}%"


def short(seconds: float | None) -> str:
    """Return a duration for a narrow column: 45s, 12m, 5h, 3d."""
    return duration(seconds, ("s", "m", "h", "d"))


def age(seconds: float | None) -> str:
    """Return the age of a sample."""
    return "never" if seconds is None else short(seconds)


def bar(share: float | None, width: int) -> str:
    """Return a bar of `width` cells filled to `share` (0 to 1), in eighths of a cell."""
    eighths = round(min(max(share or 0.0, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[part - 1] if part else "")).ljust(width)
