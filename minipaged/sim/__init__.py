"""Simulating a server: what comes in, and what it costs. numpy and the standard library alone."""
