"""How a host is, and the evidence for why: what the command line and the dashboard both look at."""
