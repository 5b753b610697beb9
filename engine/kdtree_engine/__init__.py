"""kdtree-engine: DDTree for stock SGLang, its verify attention, and a systemd-aware launcher."""
