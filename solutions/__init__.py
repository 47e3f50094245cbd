"""The exercises, solved and explained: one module for each chapter."""
