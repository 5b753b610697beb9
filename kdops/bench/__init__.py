"""Measure arms against each other: workloads, legs, checks, statistics, typed results."""
