"""Draw the dashboard over real hosts as SVGs (for the documentation), while requests run.

usage: picture_tui.py INVENTORY OUT_FOLDER [SECONDS]   kdops must be on the PATH; every host must serve
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from kdops import fleet
from kdops.tui import start
from kdops.tui.app import Dashboard

SIZE = (132, 38)
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_PROMPT = "Count from one to two hundred in words."


async def pictures(app: Dashboard, out: Path, seconds: float) -> None:
    """Watch for `seconds`, then save a picture of each view."""
    async with app.run_test(size=SIZE) as pilot:
        app.action_view("journal")
        await pilot.pause(seconds / 2)
        app.action_view("host")
        await pilot.pause(seconds / 2)
        app.action_diagnose()
        for view in ("fleet", "host", "journal", "ab"):
            app.action_view(view)
            for _ in range(12):
                await pilot.pause(0.25)
            save(app, out / f"tui-{view}.svg")
        app.action_view("fleet")
        await pilot.pause(0.5)
        app.action_actions()
        await pilot.pause(0.5)
        save(app, out / "tui-actions.svg")


def save(app: Dashboard, path: Path) -> None:
    """Write the screen, without fonts from elsewhere."""
    svg = app.export_screenshot(title="kdops tui")
    while "@font-face" in svg:
        begin = svg.index("@font-face")
        svg = svg[:begin] + svg[svg.index("}", begin) + 1 :]
    path.write_text(svg.replace("Fira Code, monospace", _FONT).replace("Fira Code", _FONT))


def main() -> None:
    """Send requests to every host, watch, draw."""
    inventory, out = Path(sys.argv[1]), Path(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60.0
    out.mkdir(parents=True, exist_ok=True)
    hosts = fleet.load(inventory).hosts
    loop = 'end=$(($(date +%s) + $3)); while [ $(date +%s) -lt $end ]; do kdops generate $1 -i $2 "$4"; done'
    load = [
        subprocess.Popen(
            ["bash", "-c", loop, "load", host.name, str(inventory), str(int(seconds) + 40), _PROMPT],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for host in hosts
    ]
    time.sleep(5)
    app = start.live(hosts, 1.0, None, write=True, view="fleet", theme=None)
    asyncio.run(pictures(app, out, seconds))
    for process in load:
        process.wait()


if __name__ == "__main__":
    main()
