"""Would the unit overwrite one that kdops did not write?"""

from __future__ import annotations

from collections.abc import Iterator

from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State
from kdops.guard.context import Context


def rows(ctx: Context, asked: Question) -> Iterator[Row]:
    installed = ctx.layout.units / asked.manifest["unit"]
    if not installed.is_file() or ctx.store.load().outcome is not None or ctx.layout.current.is_symlink():
        return
    text = f"{installed}, and kdops did not write it"
    remedy = "choose another engine_service, or adopt it under another name"
    yield Row("unit", State.FAIL, text, remedy, "a service of that name exists")
