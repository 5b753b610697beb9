"""The launcher: `python -m kdtree_engine.serve --config launch.yaml` runs SGLang as a systemd service."""
