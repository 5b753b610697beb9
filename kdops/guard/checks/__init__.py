"""What a host can be asked before a deploy, row by row: standard library only, runs on the host."""
