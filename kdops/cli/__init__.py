"""The command line: parse, call, show. Nothing here decides anything."""
