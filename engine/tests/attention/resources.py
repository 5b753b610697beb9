"""Run in its own process, outside Triton's interpreter: print what the kernels would use, as JSON."""

import json
import sys
from dataclasses import asdict

from ahead import hopper_resources, merge_resources, split_resources
from kdtree_engine.attention import CacheType, gqa, make_plan, mla
from kdtree_engine.attention.devices import B300, H200, RTX_PRO_6000
from kdtree_engine.attention.tiles import portable_tiles

SHAPES = {
    "mla": mla(8),
    "mla-fp8": mla(8, CacheType.FP8_E4M3),
    "gqa-256": gqa(16, 2, 256),
}


def main(what: str) -> None:
    found = {}
    if what == "hopper":
        plan = make_plan(mla(8), H200, 1, 33, 200_000)
        assert plan.hopper
        found["mla"] = asdict(hopper_resources(plan))
    else:
        device = {"120": RTX_PRO_6000, "103": B300, "90": H200}[what]
        for name, shape in SHAPES.items():
            for rows in (1, 33) if name == "mla" else (33,):
                plan = make_plan(shape, device, 1, rows, 200_000, portable_tiles(shape, device, rows))
                found[f"{name} x{rows}"] = asdict(split_resources(plan, device.capability))
        found["merge"] = asdict(merge_resources(plan, device.capability))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
