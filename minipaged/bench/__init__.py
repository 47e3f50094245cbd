"""Measuring the engine."""
