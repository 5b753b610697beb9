"""Draw the dashboard over real hosts as SVGs (for the documentation), while requests run.

usage: picture_tui.py INVENTORY OUT_FOLDER [SECONDS]   every host must serve
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

from kdops import fleet
from kdops.cli.lab_words import better
from kdops.fleet import Host
from kdops.host import HostConnection, probe
from kdops.tui import start
from kdops.tui.app import Dashboard

SIZE, HOST_SIZE = (132, 38), (190, 48)
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_LOAD = """end=$(($(date +%s) + $2)); while [ $(date +%s) -lt $end ]; do
  curl -sf -o /dev/null localhost:$1/generate -H 'content-type: application/json' -d "$3" || sleep 1
done"""
_REQUEST = """{"text": "One, two, three, four,",
  "sampling_params": {"temperature": 0, "max_new_tokens": 600, "ignore_eos": true}}"""


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
            await pilot.resize_terminal(*(HOST_SIZE if view == "host" else SIZE))
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
    load = [threading.Thread(target=requests, args=(host, seconds + 20)) for host in hosts]
    for one in load:
        one.start()
    app = start.live(hosts, 1.0, None, better, write=True, view="fleet", theme=None)
    asyncio.run(pictures(app, out, seconds))
    for one in load:
        one.join()


def requests(host: Host, seconds: float) -> None:
    """Keep one request running on the host for so long."""
    with HostConnection(host) as connection:
        engine = probe(connection).engine
        assert engine is not None
        argv = ["sh", "-c", _LOAD, "load", str(engine.port), str(int(seconds)), _REQUEST]
        connection.run(argv, timeout=seconds + 60, check=True)


if __name__ == "__main__":
    main()
