"""kdops: deploy, watch and compare speculative decoding on your own GPU hosts, under systemd."""

__version__ = "0.1.0"
