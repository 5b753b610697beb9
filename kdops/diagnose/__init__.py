"""Evidence to findings, lines to failure classes. Pure: whoever calls it gathers the evidence."""
